// c10::Half and c10::BFloat16 themselves: their headers need nothing else of PyTorch, and arithmetic stays the same.
// To be included before the other light headers.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

namespace at {
using c10::BFloat16;
using c10::Half;
}  // namespace at
