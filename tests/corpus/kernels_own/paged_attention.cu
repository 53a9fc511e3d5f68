// Attention of one query token per sequence over keys and values that lie in pages, after PagedAttention (Kwon et al., 2023).
#include <cuda_fp16.h>
#include <cfloat>
#include <cstdint>

#define OWN_RESTRICT __restrict__
#define WARP_SIZE 32
#define DIVIDE_ROUND_UP(a, b) (((a) + (b) - 1) / (b))

namespace paged {

template <int WARPS>
__device__ float block_sum(float* partial, float value) {
  for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  if (threadIdx.x % WARP_SIZE == 0) partial[threadIdx.x / WARP_SIZE] = value;
  __syncthreads();
  value = 0.f;
  for (int w = 0; w < WARPS; ++w) value += partial[w];
  __syncthreads();
  return value;
}

// Grid: (num_heads, num_seqs). Pages: key_cache and value_cache are [num_pages, num_kv_heads, PAGE_SIZE, HEAD_SIZE].
template <int HEAD_SIZE, int PAGE_SIZE, int NUM_THREADS>
__global__ void __launch_bounds__(NUM_THREADS) paged_attention_kernel(
    half* OWN_RESTRICT out, const half* OWN_RESTRICT query, const half* OWN_RESTRICT key_cache,
    const half* OWN_RESTRICT value_cache, const int* OWN_RESTRICT page_tables, const int* OWN_RESTRICT seq_lens,
    const int num_kv_heads, const float scale, const int max_pages) {
  static_assert(NUM_THREADS % WARP_SIZE == 0, "whole warps");
  constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
  extern __shared__ float logits[];
  __shared__ float partial[NUM_WARPS];
  __shared__ half q_row[HEAD_SIZE];

  const int head = blockIdx.x;
  const int seq = blockIdx.y;
  const int kv_head = head / (gridDim.x / num_kv_heads);
  const int seq_len = seq_lens[seq];
  const int* OWN_RESTRICT pages = page_tables + seq * max_pages;
  const half* q_ptr = query + (seq * gridDim.x + head) * HEAD_SIZE;
  for (int i = threadIdx.x; i < HEAD_SIZE; i += NUM_THREADS) q_row[i] = q_ptr[i];
  __syncthreads();

  float qk_max = -FLT_MAX;
  for (int token = threadIdx.x; token < seq_len; token += NUM_THREADS) {
    const int64_t page = pages[token / PAGE_SIZE];
    const half* k_ptr = key_cache + ((page * num_kv_heads + kv_head) * PAGE_SIZE + token % PAGE_SIZE) * HEAD_SIZE;
    float qk = 0.f;
    for (int d = 0; d < HEAD_SIZE; ++d) qk += __half2float(q_row[d]) * __half2float(k_ptr[d]);
    qk *= scale;
    logits[token] = qk;
    qk_max = fmaxf(qk_max, qk);
  }
  for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) qk_max = fmaxf(qk_max, __shfl_xor_sync(0xffffffffu, qk_max, offset));
  if (threadIdx.x % WARP_SIZE == 0) partial[threadIdx.x / WARP_SIZE] = qk_max;
  __syncthreads();
  for (int w = 0; w < NUM_WARPS; ++w) qk_max = fmaxf(qk_max, partial[w]);
  __syncthreads();

  float sum = 0.f;
  for (int token = threadIdx.x; token < seq_len; token += NUM_THREADS) {
    const float p = __expf(logits[token] - qk_max);
    logits[token] = p;
    sum += p;
  }
  sum = block_sum<NUM_WARPS>(partial, sum);

  for (int d = threadIdx.x; d < HEAD_SIZE; d += NUM_THREADS) {
    float acc = 0.f;
    for (int token = 0; token < seq_len; ++token) {
      const int64_t page = pages[token / PAGE_SIZE];
      const half* v_ptr = value_cache + ((page * num_kv_heads + kv_head) * PAGE_SIZE + token % PAGE_SIZE) * HEAD_SIZE;
      acc += logits[token] * __half2float(v_ptr[d]);
    }
    out[(seq * gridDim.x + head) * HEAD_SIZE + d] = __float2half(acc / sum);
  }
}

}  // namespace paged

#define LAUNCH_PAGED_ATTENTION(HEAD_SIZE)                                                                 \
  paged::paged_attention_kernel<HEAD_SIZE, 16, 128><<<grid, block, shared_bytes, stream>>>(               \
      out, query, key_cache, value_cache, page_tables, seq_lens, num_kv_heads, scale, max_pages)

void paged_attention(half* out, const half* query, const half* key_cache, const half* value_cache, const int* page_tables,
                     const int* seq_lens, int num_seqs, int num_heads, int num_kv_heads, int head_size, float scale,
                     int max_pages, int max_seq_len, cudaStream_t stream) {
  const dim3 grid(num_heads, num_seqs);
  const dim3 block(128);
  const int shared_bytes = DIVIDE_ROUND_UP(max_seq_len, 16) * 16 * sizeof(float);
  switch (head_size) {
    case 64: LAUNCH_PAGED_ATTENTION(64); break;
    case 128: LAUNCH_PAGED_ATTENTION(128); break;
  }
}
