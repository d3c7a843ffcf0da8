"""A CUDA driver of two GPUs that answers which there are, by CUDA_VISIBLE_DEVICES, and opens handles of memory.

It opens those whose first byte is `OPENS`, and none at all while REFUSES_TO_SHARE is set.
"""

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

struct Handle { char bytes[64]; };
static char memory[MEMORY_BYTES];

extern "C" int cuIpcOpenMemHandle_v2(unsigned long long* address, Handle handle, unsigned) {
    if (std::getenv("REFUSES_TO_SHARE")) return 801;
    if (handle.bytes[0] != OPENS) return 1;
    *address = reinterpret_cast<unsigned long long>(memory);
    return 0;
}
extern "C" int cuMemGetAddressRange_v2(unsigned long long* base, size_t* size, unsigned long long) {
    *base = reinterpret_cast<unsigned long long>(memory);
    *size = MEMORY_BYTES;
    return 0;
}
extern "C" int cuIpcCloseMemHandle(unsigned long long) { return 0; }
"""
OPENS, MEMORY_BYTES = 0x4B, 1 << 16
UUIDS = ("GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0", "GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1")


def build_fake_driver(folder: Path) -> Path:
    """Compile it into a folder, which must stand in LD_LIBRARY_PATH when a process starts."""
    source = folder / "driver.cpp"
    source.write_text(SOURCE.replace("OPENS", str(OPENS)).replace("MEMORY_BYTES", str(MEMORY_BYTES)))
    compiler = find_host_compiler()
    assert compiler is not None
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    return folder
