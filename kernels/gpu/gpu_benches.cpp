// Which benches there are, whether they can run, and what the GPU is.
#include "kernels/gpu/gpu_benches.h"

#include <cuda_runtime.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "kernels/gpu/cuda.h"
#include "kernels/python.h"

namespace offsim::kernels {

namespace {

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string version_in_words(int version) {  // 13000: "13.0"
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string driver_in_words() {
  const std::string full = first_line("/sys/module/nvidia/version");
  if (!full.empty()) {
    return full;
  }
  int version = 0;
  gpu::check(cudaDriverGetVersion(&version), "asking for the driver's version");
  return "CUDA " + version_in_words(version);
}

// "32.0 GT/s PCIe" is generation 5; 0 for what is none. Read after the context was made, which
// wakes a link that slept at a lower speed.
int pcie_generation(const std::string& speed) {
  const double rate = std::strtod(speed.c_str(), nullptr);
  int generation = 0;
  for (const double step : {2.5, 5.0, 8.0, 16.0, 32.0, 64.0}) {
    generation += rate >= step - 0.1 ? 1 : 0;
  }
  return generation;
}

std::string link_in_json(const std::string& pci) {
  const std::string folder = "/sys/bus/pci/devices/" + pci + "/";
  const int generation = pcie_generation(first_line(folder + "current_link_speed"));
  const int width = std::atoi(first_line(folder + "current_link_width").c_str());
  if (generation == 0 || width <= 0 || width > 32) {
    return "";
  }
  return ",\"link\":{\"generation\":" + std::to_string(generation) +
         ",\"width\":" + std::to_string(width) + "}";
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += std::isprint(static_cast<unsigned char>(c)) != 0 ? c : ' ';
  }
  return out + "\"";
}

// What a bench needs beside a GPU.
std::optional<std::string> lacks(std::string_view bench) {
  if (const auto reason = gpu::no_gpu()) {
    return reason;
  }
  if (bench == "attention") {
    return python_lacks("torch");
  }
  if ((bench == "gpus_at_once" || bench == "peer_copy") && gpu::gpu_count() < 2) {
    return "one GPU";
  }
  return std::nullopt;
}

}  // namespace

std::vector<Bench> gpu_benches() {
#define OFFSIM_BENCH(name, group, sentence) \
  {#name, Group::group, sentence, [](const Options&) { return lacks(#name); }, gpu_bench::name},
  return {OFFSIM_GPU_BENCHES(OFFSIM_BENCH)};
#undef OFFSIM_BENCH
}

std::string describe_gpu() {
  if (gpu::no_gpu()) {
    return "null";
  }
  gpu::check(cudaFree(nullptr), "making a context");
  cudaDeviceProp properties{};
  gpu::check(cudaGetDeviceProperties(&properties, 0), "asking what the GPU is");
  char id[32] = "";
  gpu::check(cudaDeviceGetPCIBusId(id, sizeof id, 0), "asking where the GPU is");
  std::string pci = id;
  for (char& c : pci) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  int runtime = 0;
  gpu::check(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
  std::ostringstream out;
  out << "{\"name\":" << quoted(properties.name) << ",\"count\":" << gpu::gpu_count()
      << ",\"memory_bytes\":" << properties.totalGlobalMem
      << ",\"multiprocessors\":" << properties.multiProcessorCount << ",\"compute\":\""
      << properties.major << "." << properties.minor
      << "\",\"driver\":" << quoted(driver_in_words()) << ",\"runtime\":\""
      << version_in_words(runtime) << "\",\"l2_bytes\":" << properties.l2CacheSize
      << ",\"pci\":" << quoted(pci) << link_in_json(pci) << "}";
  return out.str();
}

}  // namespace offsim::kernels
