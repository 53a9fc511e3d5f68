// Accesses through dereferences, casts, views and inner blocks.
#include "view.cuh"

__constant__ float scales[8];

__global__ void gemv_kernel(const half* __restrict__ a, const half* b, half* c, const float* bias, int n, int k)
{
    View a_(a, n, k);
    View b_(b, k, n);
    int row = blockIdx.x;
    const half* a_ptr = a_.item_ptr(row, 0);
    half *c_ptr = c + row, *c_end = c + n;
    half buffer[4];
    half* local = buffer;
    half r = {};
    if (!n) r = *c_ptr;  // expect: load c
    int4 wide = *((int4*) a_ptr);  // expect: load a
    float4 last = reinterpret_cast<const float4*>(a)[row];  // expect: load a
    half more = *a_ptr++;  // expect: load a
    local[0] = more; *local = r;
    float chosen = (bias ? *(bias + row) : 0.f) * scales[row];  // expect: load bias
    half other = b_.item(row, 0);
    atomicAdd(&c[row], r);  // expect: store c
    *reinterpret_cast<half*>(&c[row]) = r;  // expect: store c
    *c_ptr = __float2half(chosen * chosen);  // expect: store c
}

__global__ void whole_kernel(const float* x, float* y, int n)
{
    float total = 0;
    for (const float* p = x; p < x + n; ++p) total += *p * *p;  // expect: load x
    *y = total;  // expect: store y
}

__device__ __forceinline__ void add_one(float* to, const float* from, int at)
{
    to[at] = from[at] + 1;  // expect: store y
}

__global__ void handed_kernel(const float* x, float* y)
{
    add_one(y, x, threadIdx.x);
    elsewhere(y);
}

__global__ void scoped_kernel(const void* x, void* y, bool wide)
{
    float x_row = 0;
    if (!wide)
    {
        const half2* x_row = (const half2*) x;
        half2* y_row = (half2*) y;
        y_row[threadIdx.x] = x_row[threadIdx.x];  // expect: load x
    }
    else
    {
        const float2* x_row = (const float2*) x;
        float2* y_row = (float2*) y;
        y_row[threadIdx.x] = x_row[threadIdx.x];  // expect: store y
    }
}

void run(const half* a, const half* b, half* c, const float* x, float* y, int n, int k) {
    gemv_kernel<<<n, 32>>>(a, b, c, x, n, k);
    whole_kernel<<<1, 1>>>(x, y, n);
    handed_kernel<<<1, 32>>>(x, y);
    scoped_kernel<<<1, 32>>>(x, y, false);
}
