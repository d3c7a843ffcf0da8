// The functions of kernelwright/runtime.h, by PyTorch. Compiled once for each PyTorch and linked into every extension
// that was compiled against the light headers.
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/types.h>

#include <new>
#include <optional>
#include <stdexcept>

#include "kernelwright/runtime.h"

namespace {

using Pointer = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

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

KernelwrightSpan span(c10::IntArrayRef given) {
  return {given.data(), given.size()};
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

// What pybind11 makes of the standard library's exceptions; null stands for its RuntimeError.
PyObject* pybind_error_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return PyExc_MemoryError;
  if (dynamic_cast<const std::out_of_range*>(&error) != nullptr) return PyExc_IndexError;
  if (dynamic_cast<const std::overflow_error*>(&error) != nullptr) return PyExc_OverflowError;
  const bool of_value = dynamic_cast<const std::domain_error*>(&error) != nullptr ||
                        dynamic_cast<const std::invalid_argument*>(&error) != nullptr ||
                        dynamic_cast<const std::length_error*>(&error) != nullptr ||
                        dynamic_cast<const std::range_error*>(&error) != nullptr;
  return of_value ? PyExc_ValueError : nullptr;
}

template <typename T>
void* typed(const at::Tensor& tensor, bool is_const) {
  if (is_const) return const_cast<T*>(tensor.const_data_ptr<T>());
  return tensor.mutable_data_ptr<T>();
}

}  // namespace

void* kernelwright_undefined() noexcept {
  return c10::UndefinedTensorImpl::singleton();
}

void kernelwright_retain(void* tensor) noexcept {
  Pointer::reclaim_copy(static_cast<c10::TensorImpl*>(tensor)).release();
}

void kernelwright_release(void* tensor) noexcept {
  Pointer::reclaim(static_cast<c10::TensorImpl*>(tensor));
}

int64_t kernelwright_dim(void* tensor) {
  return of(tensor).dim();
}

int64_t kernelwright_numel(void* tensor) {
  return of(tensor).numel();
}

int64_t kernelwright_size(void* tensor, int64_t dim) {
  return of(tensor).size(dim);
}

int64_t kernelwright_stride(void* tensor, int64_t dim) {
  return of(tensor).stride(dim);
}

KernelwrightSpan kernelwright_sizes(void* tensor) {
  return span(of(tensor).sizes());
}

KernelwrightSpan kernelwright_strides(void* tensor) {
  return span(of(tensor).strides());
}

int64_t kernelwright_storage_offset(void* tensor) {
  return of(tensor).storage_offset();
}

int64_t kernelwright_element_size(void* tensor) {
  return of(tensor).element_size();
}

int64_t kernelwright_nbytes(void* tensor) {
  return static_cast<int64_t>(of(tensor).nbytes());
}

KernelwrightOptions kernelwright_options(void* tensor) {
  const at::Tensor& of_tensor = of(tensor);
  TORCH_CHECK(of_tensor.layout() == c10::kStrided, "only strided tensors have light options");
  const c10::Device device = of_tensor.device();
  return {static_cast<int>(of_tensor.scalar_type()), static_cast<int>(device.type()), device.index(), -1, -1, -1};
}

int kernelwright_scalar_type(void* tensor) {
  return static_cast<int>(of(tensor).scalar_type());
}

int kernelwright_is_contiguous(void* tensor, int memory_format) {
  return of(tensor).is_contiguous(format(memory_format).value_or(c10::MemoryFormat::Contiguous));
}

int kernelwright_requires_grad(void* tensor) {
  return of(tensor).requires_grad();
}

int kernelwright_is_pinned(void* tensor) {
  return of(tensor).is_pinned();
}

void* kernelwright_data_ptr(void* tensor, int scalar_type, bool is_const) {
  const at::Tensor& of_tensor = of(tensor);
  if (scalar_type < 0) {
    return is_const ? const_cast<void*>(of_tensor.const_data_ptr()) : of_tensor.mutable_data_ptr();
  }
  switch (static_cast<c10::ScalarType>(scalar_type)) {
#define KERNELWRIGHT_TYPED(type, name) \
  case c10::ScalarType::name:          \
    return typed<type>(of_tensor, is_const);
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(KERNELWRIGHT_TYPED)
#undef KERNELWRIGHT_TYPED
    default:
      TORCH_CHECK(false, "no data pointer of the type ", static_cast<c10::ScalarType>(scalar_type));
  }
}

void* kernelwright_empty(KernelwrightSpan sizes, KernelwrightOptions given) {
  return handed_over(torch::empty(span(sizes), without_format(given), format(given)));
}

void* kernelwright_empty_strided(KernelwrightSpan sizes, KernelwrightSpan strides, KernelwrightOptions given) {
  return handed_over(torch::empty_strided(span(sizes), span(strides), options(given)));
}

void* kernelwright_zeros(KernelwrightSpan sizes, KernelwrightOptions given) {
  return handed_over(torch::zeros(span(sizes), options(given)));
}

void* kernelwright_ones(KernelwrightSpan sizes, KernelwrightOptions given) {
  return handed_over(torch::ones(span(sizes), options(given)));
}

void* kernelwright_empty_like(void* tensor, KernelwrightOptions given) {
  return handed_over(torch::empty_like(of(tensor), without_format(given), format(given)));
}

void* kernelwright_zeros_like(void* tensor, KernelwrightOptions given) {
  return handed_over(torch::zeros_like(of(tensor), without_format(given), format(given)));
}

void* kernelwright_ones_like(void* tensor, KernelwrightOptions given) {
  return handed_over(torch::ones_like(of(tensor), without_format(given), format(given)));
}

void* kernelwright_full(KernelwrightSpan sizes, double value, int64_t whole, bool is_whole,
                        KernelwrightOptions given) {
  return handed_over(torch::full(span(sizes), scalar(value, whole, is_whole), options(given)));
}

void* kernelwright_full_like(void* tensor, double value, int64_t whole, bool is_whole, KernelwrightOptions given) {
  return handed_over(
      torch::full_like(of(tensor), scalar(value, whole, is_whole), without_format(given), format(given)));
}

void* kernelwright_contiguous(void* tensor, int memory_format) {
  return handed_over(of(tensor).contiguous(format(memory_format).value_or(c10::MemoryFormat::Contiguous)));
}

void* kernelwright_clone(void* tensor, int memory_format) {
  return handed_over(of(tensor).clone(format(memory_format)));
}

void* kernelwright_detach(void* tensor) {
  return handed_over(of(tensor).detach());
}

void* kernelwright_to(void* tensor, KernelwrightOptions given, bool non_blocking, bool copy) {
  return handed_over(of(tensor).to(without_format(given), non_blocking, copy, format(given)));
}

void* kernelwright_view(void* tensor, KernelwrightSpan sizes) {
  return handed_over(of(tensor).view(span(sizes)));
}

void* kernelwright_view_as_type(void* tensor, int dtype) {
  return handed_over(of(tensor).view(static_cast<c10::ScalarType>(dtype)));
}

void* kernelwright_reshape(void* tensor, KernelwrightSpan sizes) {
  return handed_over(of(tensor).reshape(span(sizes)));
}

void* kernelwright_expand(void* tensor, KernelwrightSpan sizes, bool implicit) {
  return handed_over(of(tensor).expand(span(sizes), implicit));
}

void* kernelwright_permute(void* tensor, KernelwrightSpan order) {
  return handed_over(of(tensor).permute(span(order)));
}

void* kernelwright_as_strided(void* tensor, KernelwrightSpan sizes, KernelwrightSpan strides, int64_t offset,
                              bool has_offset) {
  const auto given = has_offset ? std::optional<int64_t>(offset) : std::nullopt;
  return handed_over(of(tensor).as_strided(span(sizes), span(strides), given));
}

void* kernelwright_transpose(void* tensor, int64_t first, int64_t second) {
  return handed_over(of(tensor).transpose(first, second));
}

void* kernelwright_t(void* tensor) {
  return handed_over(of(tensor).t());
}

void* kernelwright_unsqueeze(void* tensor, int64_t dim) {
  return handed_over(of(tensor).unsqueeze(dim));
}

void* kernelwright_squeeze(void* tensor, int64_t dim, bool has_dim) {
  return handed_over(has_dim ? of(tensor).squeeze(dim) : of(tensor).squeeze());
}

void* kernelwright_flatten(void* tensor, int64_t first, int64_t last) {
  return handed_over(of(tensor).flatten(first, last));
}

void* kernelwright_narrow(void* tensor, int64_t dim, int64_t start, int64_t length) {
  return handed_over(of(tensor).narrow(dim, start, length));
}

void* kernelwright_select(void* tensor, int64_t dim, int64_t index) {
  return handed_over(of(tensor).select(dim, index));
}

void* kernelwright_slice(void* tensor, int64_t dim, int64_t start, int64_t end, int has, int64_t step) {
  const auto first = (has & 1) != 0 ? std::optional<int64_t>(start) : std::nullopt;
  const auto last = (has & 2) != 0 ? std::optional<int64_t>(end) : std::nullopt;
  return handed_over(of(tensor).slice(dim, first, last, step));
}

void kernelwright_copy(void* tensor, void* source, bool non_blocking) {
  of(tensor).copy_(of(source), non_blocking);
}

void kernelwright_resize(void* tensor, KernelwrightSpan sizes) {
  of(tensor).resize_(span(sizes));
}

void kernelwright_zero(void* tensor) {
  of(tensor).zero_();
}

void kernelwright_fill(void* tensor, double value, int64_t whole, bool is_whole) {
  of(tensor).fill_(scalar(value, whole, is_whole));
}

void kernelwright_item(void* tensor, int scalar_type, void* value) {
  const c10::Scalar item = of(tensor).item();
  switch (static_cast<c10::ScalarType>(scalar_type)) {
#define KERNELWRIGHT_ITEM(type, name)              \
  case c10::ScalarType::name:                      \
    *static_cast<type*>(value) = item.to<type>();  \
    return;
    AT_FORALL_SCALAR_TYPES_AND(Bool, KERNELWRIGHT_ITEM)
#undef KERNELWRIGHT_ITEM
    default:
      TORCH_CHECK(false, "no item of the type ", static_cast<c10::ScalarType>(scalar_type));
  }
}

const char* kernelwright_type_name(int scalar_type) {
  return c10::toString(static_cast<c10::ScalarType>(scalar_type));
}

KernelwrightText kernelwright_cpp_type_name(int scalar_type) {
  const auto name = c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(scalar_type)).name();
  return {name.data(), name.size()};
}

size_t kernelwright_type_size(int scalar_type) {
  return c10::elementSize(static_cast<c10::ScalarType>(scalar_type));
}

bool kernelwright_type_is_floating(int scalar_type) {
  return c10::isFloatingType(static_cast<c10::ScalarType>(scalar_type));
}

void kernelwright_throw(int kind, const char* function, const char* file, uint32_t line, const char* message) {
  const c10::SourceLocation where{function, file, line};
  switch (kind) {
    case 1:
      throw c10::NotImplementedError(where, message);
    case 2:
      throw c10::ValueError(where, message);
    case 3:
      throw c10::IndexError(where, message);
    case 4:
      throw c10::TypeError(where, message);
    default:
      throw c10::Error(where, message);
  }
}

void kernelwright_warn(const char* function, const char* file, uint32_t line, const char* message) {
  c10::warn(c10::Warning(c10::UserWarning(), c10::SourceLocation{function, file, line}, std::string(message), false));
}

void* kernelwright_unwrap(PyObject* object) noexcept {
  if (!THPVariable_Check(object)) return nullptr;
  return handed_over(THPVariable_Unpack(object));
}

bool kernelwright_is_tensor(PyObject* object) noexcept {
  return THPVariable_Check(object);
}

PyObject* kernelwright_wrap(void* tensor) {
  return THPVariable_Wrap(of(tensor));
}

void kernelwright_set_python_error(bool handled) noexcept {
  try {
    throw;
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(std::current_exception());
  } catch (const torch::PyTorchError&) {
    torch::translate_exception_to_python(std::current_exception());
  } catch (const std::exception& error) {
    PyObject* type = handled ? nullptr : pybind_error_of(error);
    if (type == nullptr) {
      torch::translate_exception_to_python(std::current_exception());
    } else {
      PyErr_SetString(type, error.what());
    }
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "Caught an unknown exception!");
  }
}

PyObject* kernelwright_call_with_warnings(PyObject* (*call)(const void*, PyObject*, PyObject*), const void* callable,
                                          PyObject* arguments, PyObject* keywords) {
  torch::PyWarningHandler warnings;
  try {
    return call(callable, arguments, keywords);
  } catch (...) {
    warnings.set_in_exception();
    throw;
  }
}

int kernelwright_dtype_of(PyObject* object) noexcept {
  return THPDtype_Check(object) ? static_cast<int>(reinterpret_cast<THPDtype*>(object)->scalar_type) : -1;
}
