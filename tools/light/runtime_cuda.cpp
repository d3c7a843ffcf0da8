// The part of kernelwright/runtime.h that needs PyTorch's CUDA libraries.
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "kernelwright/runtime.h"

// Not by their own header, which wants the headers of cuBLAS, cuSPARSE and cuSOLVER.
namespace at::cuda {
TORCH_CUDA_CPP_API cudaDeviceProp* getCurrentDeviceProperties();
TORCH_CUDA_CPP_API cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device);
}  // namespace at::cuda

namespace {

c10::cuda::CUDAStream stream_of(int64_t id, int device) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  return c10::cuda::CUDAStream::unpack3(id, index, c10::DeviceType::CUDA);
}

int64_t described(c10::cuda::CUDAStream stream, int* device) {
  *device = stream.device_index();
  return stream.id();
}

}  // namespace

void* kernelwright_current_stream(int device) {
  return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream();
}

int kernelwright_current_device() {
  return c10::cuda::current_device();
}

int kernelwright_device_count() noexcept {
  return c10::cuda::device_count();
}

void kernelwright_set_device(int device) {
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
}

void* kernelwright_device_properties(int device) {
  if (device < 0) return at::cuda::getCurrentDeviceProperties();
  return at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device));
}

void kernelwright_cuda_check(int error) {
  C10_CUDA_CHECK(static_cast<cudaError_t>(error));
}

int64_t kernelwright_current_stream_id(int device, int* device_of_it) {
  return described(c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)), device_of_it);
}

int64_t kernelwright_pool_stream_id(bool high_priority, int device, int* device_of_it) {
  return described(c10::cuda::getStreamFromPool(high_priority, static_cast<c10::DeviceIndex>(device)), device_of_it);
}

int64_t kernelwright_default_stream_id(int device, int* device_of_it) {
  return described(c10::cuda::getDefaultCUDAStream(static_cast<c10::DeviceIndex>(device)), device_of_it);
}

void* kernelwright_stream_handle(int64_t id, int device) {
  return stream_of(id, device).stream();
}

void kernelwright_set_current_stream(int64_t id, int device) {
  c10::cuda::setCurrentCUDAStream(stream_of(id, device));
}

void kernelwright_synchronize_stream(int64_t id, int device) {
  stream_of(id, device).synchronize();
}
