#pragma once

namespace shop {

template <typename T>
struct Pair {
  T* first;
  T* second;
};

enum class Mode { Sum, Product };

}  // namespace shop
