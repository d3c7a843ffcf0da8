"""A CUDA driver of two GPUs that only answers which there are, and numbers them by CUDA_VISIBLE_DEVICES."""

import subprocess
from pathlib import Path

from tools.toolchain import find_host_compiler

SOURCE = """
#include <cstdlib>
#include <cstring>

static int visible(int* gpus) {
    const char* named = std::getenv("CUDA_VISIBLE_DEVICES");
    int count = 0;
    for (const char* at = named ? named : "0,1"; *at; ++at)
        if (*at == '0' || *at == '1') gpus[count++] = *at - '0';
    return count;
}

extern "C" int cuInit(unsigned) { return 0; }
extern "C" int cuDeviceGetCount(int* count) { int gpus[8]; *count = visible(gpus); return 0; }
extern "C" int cuDeviceGet(int* device, int ordinal) {
    int gpus[8];
    if (ordinal >= visible(gpus)) return 101;
    *device = gpus[ordinal];
    return 0;
}
extern "C" int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
    std::memset(uuid, 0xa0 + device, 16);
    return 0;
}
extern "C" int cuDeviceGetAttribute(int* value, int attribute, int) {
    *value = attribute == 75 ? 9 : 0;
    return 0;
}
"""
UUIDS = ("GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0", "GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1")


def build_fake_driver(folder: Path) -> Path:
    """Compile it into a folder, which must stand in LD_LIBRARY_PATH when a process starts."""
    source = folder / "driver.cpp"
    source.write_text(SOURCE)
    compiler = find_host_compiler()
    assert compiler is not None
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    return folder
