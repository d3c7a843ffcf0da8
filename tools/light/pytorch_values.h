// What the parts of the runtime share: how light code's tensors and options are read as PyTorch's.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "kernelwright/runtime.h"

namespace {  // Of each part for itself: a candidate may have functions of the same names.

static_assert(sizeof(at::Tensor) == sizeof(void*), "a tensor is one pointer to its implementation");

// The caller's pointer, read as the tensor that it is the only member of; no reference is counted.
const at::Tensor& of(void* const& impl) {
  return *reinterpret_cast<const at::Tensor*>(&impl);
}

void* handed_over(at::Tensor tensor) {
  return tensor.unsafeReleaseTensorImpl();
}

c10::IntArrayRef span(KernelwrightSpan given) {
  return c10::IntArrayRef(given.data, given.size);
}

std::optional<c10::MemoryFormat> format(int given) {
  if (given < 0) return std::nullopt;
  return static_cast<c10::MemoryFormat>(given);
}

c10::TensorOptions options(KernelwrightOptions given) {
  c10::TensorOptions made;
  if (given.dtype >= 0) made = made.dtype(static_cast<c10::ScalarType>(given.dtype));
  if (given.device_type >= 0) {
    made = made.device(c10::Device(static_cast<c10::DeviceType>(given.device_type),
                                   static_cast<c10::DeviceIndex>(given.device_index)));
  }
  if (given.requires_grad >= 0) made = made.requires_grad(given.requires_grad != 0);
  if (given.pinned_memory >= 0) made = made.pinned_memory(given.pinned_memory != 0);
  if (given.memory_format >= 0) made = made.memory_format(*format(given.memory_format));
  return made;
}

// torch::empty and its kin take the memory format apart from the other options.
std::optional<c10::MemoryFormat> format(KernelwrightOptions given) {
  return format(given.memory_format);
}

c10::TensorOptions without_format(KernelwrightOptions given) {
  given.memory_format = -1;
  return options(given);
}

c10::Scalar scalar(double value, int64_t whole, bool is_whole) {
  return is_whole ? c10::Scalar(whole) : c10::Scalar(value);
}

}  // namespace
