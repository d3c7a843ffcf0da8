// Streams, device guards and error checks of c10/cuda and ATen/cuda.
#pragma once

#include <cuda_runtime_api.h>

#include "kernelwright/tensor.h"

namespace c10 {
namespace cuda {
inline namespace light {

class CUDAStream {
 public:
  CUDAStream(int64_t id, int device) : id_(id), device_(device) {}
  operator cudaStream_t() const {
    return stream();
  }
  cudaStream_t stream() const {
    return static_cast<cudaStream_t>(kernelwright_stream_handle(id_, device_));
  }
  int64_t id() const {
    return id_;
  }
  DeviceIndex device_index() const {
    return static_cast<DeviceIndex>(device_);
  }
  Device device() const {
    return Device(DeviceType::CUDA, device_index());
  }
  void synchronize() const {
    kernelwright_synchronize_stream(id_, device_);
  }
  bool operator==(const CUDAStream& other) const noexcept {
    return id_ == other.id_ && device_ == other.device_;
  }
  bool operator!=(const CUDAStream& other) const noexcept {
    return !(*this == other);
  }

 private:
  int64_t id_;
  int device_;
};

inline CUDAStream getCurrentCUDAStream(DeviceIndex device = -1) {
  int where = 0;
  const int64_t id = kernelwright_current_stream_id(device, &where);
  return CUDAStream(id, where);
}
inline CUDAStream getDefaultCUDAStream(DeviceIndex device = -1) {
  int where = 0;
  const int64_t id = kernelwright_default_stream_id(device, &where);
  return CUDAStream(id, where);
}
inline CUDAStream getStreamFromPool(bool high_priority = false, DeviceIndex device = -1) {
  int where = 0;
  const int64_t id = kernelwright_pool_stream_id(high_priority, device, &where);
  return CUDAStream(id, where);
}
inline void setCurrentCUDAStream(CUDAStream stream) {
  kernelwright_set_current_stream(stream.id(), stream.device_index());
}
inline DeviceIndex current_device() {
  return static_cast<DeviceIndex>(kernelwright_current_device());
}
inline DeviceIndex device_count() noexcept {
  return static_cast<DeviceIndex>(kernelwright_device_count());
}
inline void set_device(DeviceIndex device) {
  kernelwright_set_device(device);
}

// Makes a device the current one for a scope.
class CUDAGuard {
 public:
  explicit CUDAGuard(DeviceIndex index) : before_(kernelwright_current_device()) {
    kernelwright_set_device(index < 0 ? before_ : index);
  }
  explicit CUDAGuard(Device device) : CUDAGuard(device.index()) {
    TORCH_CHECK(device.is_cuda(), "CUDAGuard needs a CUDA device, not ", device);
  }
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;
  ~CUDAGuard() {
    kernelwright_set_device(before_);
  }

 private:
  int before_;
};

class OptionalCUDAGuard {
 public:
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(optional<Device> device) {
    if (device) guard_.emplace(*device);
  }
  explicit OptionalCUDAGuard(optional<DeviceIndex> index) {
    if (index) guard_.emplace(*index);
  }
  OptionalCUDAGuard(const OptionalCUDAGuard&) = delete;
  OptionalCUDAGuard& operator=(const OptionalCUDAGuard&) = delete;

 private:
  optional<CUDAGuard> guard_;
};

// Makes a stream and its device the current ones for a scope.
class CUDAStreamGuard {
 public:
  explicit CUDAStreamGuard(CUDAStream stream)
      : device_(stream.device_index()), before_(getCurrentCUDAStream(stream.device_index())) {
    setCurrentCUDAStream(stream);
  }
  CUDAStreamGuard(const CUDAStreamGuard&) = delete;
  CUDAStreamGuard& operator=(const CUDAStreamGuard&) = delete;
  ~CUDAStreamGuard() {
    setCurrentCUDAStream(before_);
  }

 private:
  CUDAGuard device_;
  CUDAStream before_;
};

}  // namespace light
}  // namespace cuda

inline namespace light {

// Of any device; only a CUDA device can be made the current one.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device) {
    if (device.is_cuda()) guard_.emplace(device);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  optional<cuda::CUDAGuard> guard_;
};

}  // namespace light
}  // namespace c10

namespace at {
namespace cuda {
using namespace ::c10::cuda;
inline cudaDeviceProp* getCurrentDeviceProperties() {
  return static_cast<cudaDeviceProp*>(kernelwright_device_properties(-1));
}
inline cudaDeviceProp* getDeviceProperties(::c10::DeviceIndex device) {
  return static_cast<cudaDeviceProp*>(kernelwright_device_properties(device));
}
inline int warp_size() {
  return getCurrentDeviceProperties()->warpSize;
}
}  // namespace cuda
}  // namespace at

#define C10_CUDA_CHECK(EXPR)                                                      \
  do {                                                                            \
    const cudaError_t __err = EXPR;                                               \
    if (__err != cudaSuccess) kernelwright_cuda_check(static_cast<int>(__err));   \
  } while (0)
#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define C10_CUDA_IGNORE_ERROR(EXPR)                          \
  do {                                                       \
    if ((EXPR) != cudaSuccess) (void)cudaGetLastError();     \
  } while (0)
