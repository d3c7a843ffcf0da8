// The functions of kernelwright/runtime.h that make tensors, by PyTorch's own of the same names.
#include <torch/csrc/autograd/generated/variable_factories.h>

#include "pytorch_values.h"

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
