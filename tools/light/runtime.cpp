// The functions of kernelwright/runtime.h that ask a tensor or a type, by PyTorch. They and their neighbours,
// runtime_*.cpp, are compiled once for each PyTorch, all at the same time, and linked into every extension that was
// compiled against the light headers; each includes as little of PyTorch as it can, which is what their time goes into.
#include "pytorch_values.h"

namespace {

using Pointer = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

KernelwrightSpan span(c10::IntArrayRef given) {
  return {given.data(), given.size()};
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
