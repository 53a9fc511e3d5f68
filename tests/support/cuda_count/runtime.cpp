// Fibres and counters beneath device.h. The kernels are compiled with -fsanitize=thread, whose calls before every load and
// store end here: those within the arena are global memory.
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>
#include <algorithm>

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
dim3 threadIdx, blockIdx, blockDim, gridDim;
long long flops, bytes_read, bytes_written;

static constexpr size_t SIZE = size_t(64) << 20;
alignas(256) static char memory[SIZE];
static size_t used;
void* arena(size_t bytes) {
  used = (used + 255) / 256 * 256;
  void* made = memory + used;
  used += bytes;
  if (used > SIZE) abort();
  return made;
}

enum State { READY, BLOCK, WARP, DONE };
struct Fibre {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[256 * 1024]};
  State state = READY;
  dim3 at;
};
static std::vector<std::unique_ptr<Fibre>> fibres;
static size_t running;
static ucontext_t scheduler;
static const std::function<void()>* body;
static char slots[64][32][32];

static void stop(State state) {
  fibres[running]->state = state;
  swapcontext(&fibres[running]->context, &scheduler);
}
void wait_block() { stop(BLOCK); }
void wait_warp() { stop(WARP); }
unsigned thread_number() { return unsigned(running); }
char* slot(int lane) { return slots[running / 32][lane]; }
static void entry() {
  (*body)();
  stop(DONE);
}

static void run_block() {
  fibres.clear();
  for (unsigned z = 0; z < blockDim.z; ++z)
    for (unsigned y = 0; y < blockDim.y; ++y)
      for (unsigned x = 0; x < blockDim.x; ++x) {
        auto one = std::make_unique<Fibre>();
        one->at = dim3(x, y, z);
        getcontext(&one->context);
        one->context.uc_stack.ss_sp = one->stack.get();
        one->context.uc_stack.ss_size = 256 * 1024;
        one->context.uc_link = nullptr;
        makecontext(&one->context, entry, 0);
        fibres.push_back(std::move(one));
      }
  for (;;) {
    size_t live = 0, at_block = 0;
    for (size_t i = 0; i < fibres.size(); ++i) {
      if (fibres[i]->state == READY) {
        running = i;
        threadIdx = fibres[i]->at;
        swapcontext(&scheduler, &fibres[i]->context);
      }
      live += fibres[i]->state != DONE;
      at_block += fibres[i]->state == BLOCK;
    }
    if (live == 0) return;
    bool released = false;
    for (size_t first = 0; first < fibres.size(); first += 32) {
      size_t last = std::min(first + 32, fibres.size()), in = 0, waiting = 0;
      for (size_t i = first; i < last; ++i) {
        in += fibres[i]->state != DONE;
        waiting += fibres[i]->state == WARP;
      }
      if (waiting && waiting == in) {
        released = true;
        for (size_t i = first; i < last; ++i)
          if (fibres[i]->state == WARP) fibres[i]->state = READY;
      }
    }
    if (!released && at_block == live) {
      released = true;
      for (auto& one : fibres)
        if (one->state == BLOCK) one->state = READY;
    }
    if (!released) {
      fprintf(stderr, "threads wait for each other\n");
      exit(3);
    }
  }
}

void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread) {
  gridDim = grid;
  blockDim = block;
  body = &thread;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = dim3(x, y, z);
        run_block();
      }
}

void begin() { flops = bytes_read = bytes_written = 0; }
void report(const char* name) {
  printf("{\"case\": \"%s\", \"flops\": %lld, \"read_bytes\": %lld, \"write_bytes\": %lld}\n", name, flops, bytes_read, bytes_written);
}

static bool inside(const void* at) { return at >= memory && at < memory + SIZE; }
extern "C" {
#define HOOK(size)                                                                                  \
  void __tsan_read##size(void* at) { if (inside(at)) bytes_read += size; }                          \
  void __tsan_write##size(void* at) { if (inside(at)) bytes_written += size; }                      \
  void __tsan_unaligned_read##size(void* at) { if (inside(at)) bytes_read += size; }                \
  void __tsan_unaligned_write##size(void* at) { if (inside(at)) bytes_written += size; }
HOOK(1) HOOK(2) HOOK(4) HOOK(8) HOOK(16)
void __tsan_read_range(void* at, unsigned long size) { if (inside(at)) bytes_read += long(size); }
void __tsan_write_range(void* at, unsigned long size) { if (inside(at)) bytes_written += long(size); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
