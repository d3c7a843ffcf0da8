// torch::TensorAccessor and torch::PackedTensorAccessor32/64.
#pragma once

#include "kernelwright/tensor.h"

namespace c10 {
inline namespace light {

template <typename T>
struct RestrictPtrTraits {
  using PtrType = T* __restrict__;
};

// N dimensions of a tensor: a pointer, sizes and strides that live elsewhere.
template <typename T, size_t N, template <typename> class PtrTraits, typename index_t>
class LightAccessor {
 public:
  using PtrType = typename PtrTraits<T>::PtrType;

  C10_HOST_DEVICE LightAccessor(PtrType data, const index_t* sizes, const index_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  C10_HOST_DEVICE index_t size(index_t dim) const {
    return sizes_[dim];
  }
  C10_HOST_DEVICE index_t stride(index_t dim) const {
    return strides_[dim];
  }
  C10_HOST_DEVICE PtrType data() const {
    return data_;
  }
  C10_HOST_DEVICE decltype(auto) operator[](index_t index) const {
    if constexpr (N == 1) {
      return (data_[strides_[0] * index]);
    } else {
      return LightAccessor<T, N - 1, PtrTraits, index_t>(data_ + strides_[0] * index, sizes_ + 1, strides_ + 1);
    }
  }

 private:
  PtrType data_;
  const index_t* sizes_;
  const index_t* strides_;
};

// The same with its own copy of sizes and strides, to be passed to a kernel by value.
template <typename T, size_t N, template <typename> class PtrTraits, typename index_t>
class LightPackedAccessor {
 public:
  using PtrType = typename PtrTraits<T>::PtrType;

  LightPackedAccessor(PtrType data, const int64_t* sizes, const int64_t* strides) : data_(data) {
    for (size_t i = 0; i < N; ++i) {
      sizes_[i] = static_cast<index_t>(sizes[i]);
      strides_[i] = static_cast<index_t>(strides[i]);
    }
  }
  C10_HOST_DEVICE index_t size(index_t dim) const {
    return sizes_[dim];
  }
  C10_HOST_DEVICE index_t stride(index_t dim) const {
    return strides_[dim];
  }
  C10_HOST_DEVICE PtrType data() const {
    return data_;
  }
  C10_DEVICE decltype(auto) operator[](index_t index) const {
    if constexpr (N == 1) {
      return (data_[strides_[0] * index]);
    } else {
      return LightAccessor<T, N - 1, PtrTraits, index_t>(data_ + strides_[0] * index, sizes_ + 1, strides_ + 1);
    }
  }

 private:
  PtrType data_;
  index_t sizes_[N];
  index_t strides_[N];
};

template <typename T, size_t N, template <typename> class PtrTraits = DefaultPtrTraits, typename index_t = int64_t>
using TensorAccessor = LightAccessor<T, N, PtrTraits, index_t>;
template <typename T, size_t N, template <typename> class PtrTraits = DefaultPtrTraits, typename index_t = int64_t>
using GenericPackedTensorAccessor = LightPackedAccessor<T, N, PtrTraits, index_t>;
template <typename T, size_t N, template <typename> class PtrTraits = DefaultPtrTraits>
using PackedTensorAccessor32 = LightPackedAccessor<T, N, PtrTraits, int32_t>;
template <typename T, size_t N, template <typename> class PtrTraits = DefaultPtrTraits>
using PackedTensorAccessor64 = LightPackedAccessor<T, N, PtrTraits, int64_t>;

}  // namespace light
}  // namespace c10
