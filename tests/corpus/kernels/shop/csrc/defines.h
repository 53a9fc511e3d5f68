#pragma once
#define SHOP_GLOBAL __global__ static
#define SHOP_KERNEL(name, ...) \
    template <typename Traits, __VA_ARGS__> \
    __global__ void name(const Params params)
