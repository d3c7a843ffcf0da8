// What light code asks of PyTorch. Implemented in runtime*.cpp, which are compiled once, with PyTorch's own headers, and
// linked into every extension. A tensor is an intrusive pointer to its TensorImpl; functions that return one hand over a
// reference; an undefined tensor is PyTorch's own stand-in for it, never null. All of them may throw what PyTorch throws.
#pragma once

#include <cstddef>
#include <cstdint>

#define KERNELWRIGHT_RUNTIME extern "C" __attribute__((visibility("hidden")))

struct _object;

// Device types and scalar types are PyTorch's numbers; -1 stands for "not given".
struct KernelwrightOptions {
  int dtype;
  int device_type;
  int device_index;
  int requires_grad;
  int pinned_memory;
  int memory_format;
};

struct KernelwrightSpan {
  const int64_t* data;
  size_t size;
};

struct KernelwrightText {
  const char* data;
  size_t size;
};

// Of a scalar type: PyTorch's name, the C++ type's name, bytes of an element.
KERNELWRIGHT_RUNTIME const char* kernelwright_type_name(int scalar_type);
KERNELWRIGHT_RUNTIME KernelwrightText kernelwright_cpp_type_name(int scalar_type);
KERNELWRIGHT_RUNTIME size_t kernelwright_type_size(int scalar_type);
KERNELWRIGHT_RUNTIME bool kernelwright_type_is_floating(int scalar_type);

KERNELWRIGHT_RUNTIME void* kernelwright_undefined() noexcept;
KERNELWRIGHT_RUNTIME void kernelwright_retain(void* tensor) noexcept;
KERNELWRIGHT_RUNTIME void kernelwright_release(void* tensor) noexcept;
KERNELWRIGHT_RUNTIME int64_t kernelwright_dim(void* tensor);
KERNELWRIGHT_RUNTIME int64_t kernelwright_numel(void* tensor);
KERNELWRIGHT_RUNTIME int64_t kernelwright_size(void* tensor, int64_t dim);
KERNELWRIGHT_RUNTIME int64_t kernelwright_stride(void* tensor, int64_t dim);
KERNELWRIGHT_RUNTIME KernelwrightSpan kernelwright_sizes(void* tensor);
KERNELWRIGHT_RUNTIME KernelwrightSpan kernelwright_strides(void* tensor);
KERNELWRIGHT_RUNTIME int64_t kernelwright_storage_offset(void* tensor);
KERNELWRIGHT_RUNTIME int64_t kernelwright_element_size(void* tensor);
KERNELWRIGHT_RUNTIME int64_t kernelwright_nbytes(void* tensor);
KERNELWRIGHT_RUNTIME KernelwrightOptions kernelwright_options(void* tensor);
KERNELWRIGHT_RUNTIME int kernelwright_scalar_type(void* tensor);
KERNELWRIGHT_RUNTIME int kernelwright_is_contiguous(void* tensor, int memory_format);
KERNELWRIGHT_RUNTIME int kernelwright_requires_grad(void* tensor);
KERNELWRIGHT_RUNTIME int kernelwright_is_pinned(void* tensor);
// scalar_type: the one that the caller's C++ type stands for, or -1 for an untyped pointer.
KERNELWRIGHT_RUNTIME void* kernelwright_data_ptr(void* tensor, int scalar_type, bool is_const);

KERNELWRIGHT_RUNTIME void* kernelwright_empty(KernelwrightSpan sizes, KernelwrightOptions options);
KERNELWRIGHT_RUNTIME void* kernelwright_empty_strided(KernelwrightSpan sizes, KernelwrightSpan strides,
                                                      KernelwrightOptions options);
KERNELWRIGHT_RUNTIME void* kernelwright_zeros(KernelwrightSpan sizes, KernelwrightOptions options);
KERNELWRIGHT_RUNTIME void* kernelwright_ones(KernelwrightSpan sizes, KernelwrightOptions options);
KERNELWRIGHT_RUNTIME void* kernelwright_empty_like(void* tensor, KernelwrightOptions options);
KERNELWRIGHT_RUNTIME void* kernelwright_zeros_like(void* tensor, KernelwrightOptions options);
KERNELWRIGHT_RUNTIME void* kernelwright_ones_like(void* tensor, KernelwrightOptions options);
KERNELWRIGHT_RUNTIME void* kernelwright_full(KernelwrightSpan sizes, double value, int64_t whole, bool is_whole,
                                             KernelwrightOptions options);
KERNELWRIGHT_RUNTIME void* kernelwright_full_like(void* tensor, double value, int64_t whole, bool is_whole,
                                                  KernelwrightOptions options);

KERNELWRIGHT_RUNTIME void* kernelwright_contiguous(void* tensor, int memory_format);
KERNELWRIGHT_RUNTIME void* kernelwright_clone(void* tensor, int memory_format);
KERNELWRIGHT_RUNTIME void* kernelwright_detach(void* tensor);
KERNELWRIGHT_RUNTIME void* kernelwright_to(void* tensor, KernelwrightOptions options, bool non_blocking, bool copy);
KERNELWRIGHT_RUNTIME void* kernelwright_view(void* tensor, KernelwrightSpan sizes);
KERNELWRIGHT_RUNTIME void* kernelwright_view_as_type(void* tensor, int dtype);
KERNELWRIGHT_RUNTIME void* kernelwright_reshape(void* tensor, KernelwrightSpan sizes);
KERNELWRIGHT_RUNTIME void* kernelwright_expand(void* tensor, KernelwrightSpan sizes, bool implicit);
KERNELWRIGHT_RUNTIME void* kernelwright_permute(void* tensor, KernelwrightSpan order);
KERNELWRIGHT_RUNTIME void* kernelwright_as_strided(void* tensor, KernelwrightSpan sizes, KernelwrightSpan strides,
                                                   int64_t offset, bool has_offset);
KERNELWRIGHT_RUNTIME void* kernelwright_transpose(void* tensor, int64_t first, int64_t second);
KERNELWRIGHT_RUNTIME void* kernelwright_t(void* tensor);
KERNELWRIGHT_RUNTIME void* kernelwright_unsqueeze(void* tensor, int64_t dim);
KERNELWRIGHT_RUNTIME void* kernelwright_squeeze(void* tensor, int64_t dim, bool has_dim);
KERNELWRIGHT_RUNTIME void* kernelwright_flatten(void* tensor, int64_t first, int64_t last);
KERNELWRIGHT_RUNTIME void* kernelwright_narrow(void* tensor, int64_t dim, int64_t start, int64_t length);
KERNELWRIGHT_RUNTIME void* kernelwright_select(void* tensor, int64_t dim, int64_t index);
// has: bit 0 says that start is given, bit 1 that end is.
KERNELWRIGHT_RUNTIME void* kernelwright_slice(void* tensor, int64_t dim, int64_t start, int64_t end, int has,
                                              int64_t step);
KERNELWRIGHT_RUNTIME void kernelwright_copy(void* tensor, void* source, bool non_blocking);
KERNELWRIGHT_RUNTIME void kernelwright_resize(void* tensor, KernelwrightSpan sizes);
KERNELWRIGHT_RUNTIME void kernelwright_zero(void* tensor);
KERNELWRIGHT_RUNTIME void kernelwright_fill(void* tensor, double value, int64_t whole, bool is_whole);
// Writes the only element to where a value of that scalar type lies.
KERNELWRIGHT_RUNTIME void kernelwright_item(void* tensor, int scalar_type, void* value);

// As TORCH_CHECK, TORCH_CHECK_NOT_IMPLEMENTED and so on throw; kind: 0 Error, 1 NotImplementedError, 2 ValueError,
// 3 IndexError, 4 TypeError.
KERNELWRIGHT_RUNTIME void kernelwright_throw [[noreturn]] (int kind, const char* function, const char* file,
                                                           uint32_t line, const char* message);
KERNELWRIGHT_RUNTIME void kernelwright_warn(const char* function, const char* file, uint32_t line,
                                            const char* message);

// For the binding. Null: the object is no tensor. The Python error is that of the exception being handled.
KERNELWRIGHT_RUNTIME void* kernelwright_unwrap(_object* object) noexcept;
KERNELWRIGHT_RUNTIME bool kernelwright_is_tensor(_object* object) noexcept;
KERNELWRIGHT_RUNTIME _object* kernelwright_wrap(void* tensor);
// handled: as torch::wrap_pybind_function does it; else as pybind11.
KERNELWRIGHT_RUNTIME void kernelwright_set_python_error(bool handled) noexcept;
// PyTorch's warnings of the call become Python's.
KERNELWRIGHT_RUNTIME _object* kernelwright_call_with_warnings(_object* (*call)(const void*, _object*, _object*),
                                                              const void* callable, _object* arguments,
                                                              _object* keywords);
KERNELWRIGHT_RUNTIME int kernelwright_dtype_of(_object* object) noexcept;

// Only where the extension is built with CUDA.
KERNELWRIGHT_RUNTIME void* kernelwright_current_stream(int device);
KERNELWRIGHT_RUNTIME int kernelwright_current_device();
KERNELWRIGHT_RUNTIME int kernelwright_device_count() noexcept;
KERNELWRIGHT_RUNTIME void kernelwright_set_device(int device);
KERNELWRIGHT_RUNTIME void* kernelwright_device_properties(int device);
KERNELWRIGHT_RUNTIME void kernelwright_cuda_check(int error);
// id and device describe a stream as PyTorch does; current: of this device, or -1 for the present one.
KERNELWRIGHT_RUNTIME int64_t kernelwright_current_stream_id(int device, int* device_of_it);
KERNELWRIGHT_RUNTIME int64_t kernelwright_pool_stream_id(bool high_priority, int device, int* device_of_it);
KERNELWRIGHT_RUNTIME int64_t kernelwright_default_stream_id(int device, int* device_of_it);
KERNELWRIGHT_RUNTIME void* kernelwright_stream_handle(int64_t id, int device);
KERNELWRIGHT_RUNTIME void kernelwright_set_current_stream(int64_t id, int device);
KERNELWRIGHT_RUNTIME void kernelwright_synchronize_stream(int64_t id, int device);
