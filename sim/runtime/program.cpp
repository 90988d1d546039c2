#include "sim/runtime/program.h"

#include <fmt/format.h>

#include <array>
#include <ostream>
#include <streambuf>

#include "sim/base/text.h"
#include "sim/engine/graph.h"

namespace offsim::runtime {

using engine::index;

namespace {

std::string_view name_of(Space space) {
  static constexpr std::array<std::string_view, 4> kNames{"gpu", "pinned", "pageable", "nvme"};
  return kNames[index(space)];
}

std::string_view name_of(LaneKind kind) {
  static constexpr std::array<std::string_view, 4> kNames{"host", "stream", "worker", "io"};
  return kNames[index(kind)];
}

std::string_view name_of(Mover mover) {
  static constexpr std::array<std::string_view, 3> kNames{"engine", "kernel", "fault"};
  return kNames[index(mover)];
}

std::string_view name_of(Phase phase) {
  static constexpr std::array<std::string_view, 4> kNames{"setup", "forward", "backward",
                                                          "optimizer"};
  return kNames[index(phase)];
}

std::string_view name_of(Collective::Kind kind) {
  return kind == Collective::Kind::kAllGather ? "all_gather" : "reduce_scatter";
}

std::string_view name_of(Half half) { return half == Half::kFp16 ? "fp16" : "bf16"; }

std::string kernel_json(const model::Kernel& k, Half half) {
  using Kind = model::Kernel::Kind;
  const std::string_view type = k.wide ? "fp32" : name_of(half);
  std::string body;
  switch (k.kind) {
    case Kind::kGemm:
      body = fmt::format("\"gemm\":{{\"m\":{},\"n\":{},\"k\":{},\"type\":\"{}\"}}", k.m, k.n, k.k,
                         type);
      break;
    case Kind::kAttention:
      body = fmt::format(
          "\"attention\":{{\"batch\":{},\"heads\":{},\"kv_heads\":{},\"sequence\":{},"
          "\"head_dim\":{},\"value_dim\":{},\"causal\":true,\"backward\":{},"
          "\"type\":\"{}\"}}",
          k.batch, k.heads, k.kv_heads, k.sequence, k.head_dim, k.value_dim, k.backward, type);
      break;
    case Kind::kElementwise:
      body = fmt::format("\"elementwise\":{{\"bytes\":{},\"indexed\":{}}}", k.bytes, k.indexed);
      break;
    case Kind::kAdam:
      body = fmt::format("\"adam\":{{\"elements\":{},\"type\":\"{}\"}}", k.elements, type);
      break;
  }
  return fmt::format("{{{},\"count\":{}}}", body, k.count);
}

// One line a call.
class Writer {
 public:
  Writer(const Program& program, std::ostream& out) : program_(program), out_(out) {}

  void operator()(const Launch& c) const {
    line(R"("call":"launch","stream":{},"work":{})", lane(c.stream), index(c.work));
  }
  void operator()(const Copy& c) const {
    line(R"("call":"copy","stream":{},"from":"{}","to":"{}","bytes":{},)"
         R"("pieces":{},"blocking":{},"into":{},"mover":"{}","what":{})",
         lane(c.stream), name_of(c.from), name_of(c.to), c.bytes, c.pieces, c.blocking,
         buffer(c.into), name_of(c.mover), text(c.what));
  }
  void operator()(const CpuWork& c) const {
    line(R"("call":"cpu","thread":{},"kernel":{},"elements":{},"calls":{},)"
         R"("threads":{},"into":{},"what":{})",
         lane(c.thread), text(c.kernel), c.elements, c.calls, c.threads, buffer(c.into),
         text(c.what));
  }
  void operator()(const Io& c) const {
    line(R"("call":"{}","queue":{},"bytes":{},"in_flight":{},"gpu_direct":{},"what":{})",
         c.write ? "write" : "read", lane(c.queue), c.bytes, c.in_flight, c.to_gpu, text(c.what));
  }
  void operator()(const Collective& c) const {
    line(R"("call":"{}","stream":{},"bytes":{},"ranks":{},"what":{})", name_of(c.kind),
         lane(c.stream), c.bytes, c.ranks, text(c.what));
  }
  void operator()(const HostBusy& c) const {
    line(R"("call":"host","task":"{}","count":{},"what":{})", task_name(c.task), c.count,
         text(c.what));
  }
  void operator()(const Record& c) const {
    line(R"("call":"record","lane":{},"event":{})", lane(c.lane), index(c.event));
  }
  void operator()(const Wait& c) const {
    line(R"("call":"wait","lane":{},"event":{})", lane(c.lane), index(c.event));
  }
  void operator()(const SyncDevice&) const { line(R"("call":"synchronize")"); }
  void operator()(const Allocate& c) const {
    line(R"("call":"allocate","issuer":{},"buffer":{},"space":"{}","bytes":{},"tag":{})",
         lane(c.issuer), index(c.buffer), name_of(c.space), c.bytes, text(c.tag));
  }
  void operator()(const Free& c) const {
    line(R"("call":"free","issuer":{},"buffer":{},"used_by":{})", lane(c.issuer), index(c.buffer),
         c.used_by ? lane(*c.used_by) : "null");
  }
  void operator()(const EnterPhase& c) const {
    line(R"("call":"phase","phase":"{}")", name_of(c.phase));
  }
  void operator()(const EndStep&) const { line(R"("call":"end_step")"); }

 private:
  static std::string buffer(const std::optional<Buffer>& b) {
    return b ? std::to_string(index(*b)) : "null";
  }
  std::string text(Text t) const { return double_quoted(program_.text(t)); }
  std::string lane(Lane l) const { return double_quoted(program_.lanes[index(l)].name); }

  template <class... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    out_ << '{' << fmt::format(format, std::forward<Arguments>(arguments)...) << "}\n";
  }

  const Program& program_;
  std::ostream& out_;
};

// Hashes what is written to it and keeps nothing.
class Hasher final : public std::streambuf {
 public:
  std::uint64_t hash() const { return hash_; }

 protected:
  int_type overflow(int_type c) override {
    if (!traits_type::eq_int_type(c, traits_type::eof())) {
      const char byte = traits_type::to_char_type(c);
      xsputn(&byte, 1);
    }
    return traits_type::not_eof(c);
  }
  std::streamsize xsputn(const char* bytes, std::streamsize count) override {
    for (std::streamsize i = 0; i < count; ++i) {
      hash_ = (hash_ ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3;
    }
    return count;
  }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace

std::string program_hash(const Program& program) {
  Hasher hasher;
  std::ostream out(&hasher);
  write_program(program, out);
  return fmt::format("{:016x}", hasher.hash());
}

std::string_view task_name(HostTask task) {
  static constexpr std::array<std::string_view, 10> kNames{
      "optimizer_tensor", "optimizer_object",  "distributed_operation", "checkpoint",
      "module_hook",      "module_hook_early", "gradient_hook",         "step_tensor",
      "unshard_tensor",   "reduce_tensor"};
  return kNames[index(task)];
}

void write_program(const Program& program, std::ostream& out) {
  out << fmt::format(
      "{{\"schema\":\"offsim.program/1\",\"steps\":{},\"events\":{},\"buffers\":{}}}\n",
      program.steps, program.events, program.buffers);
  for (const LaneInfo& lane : program.lanes) {
    out << fmt::format("{{\"lane\":{},\"kind\":\"{}\"}}\n", double_quoted(lane.name),
                       name_of(lane.kind));
  }
  for (std::size_t i = 0; i < program.works.size(); ++i) {
    std::string kernels;
    for (const model::Kernel& kernel : program.works[i].kernels) {
      kernels += (kernels.empty() ? "" : ",") + kernel_json(kernel, program.half);
    }
    out << fmt::format("{{\"work\":{},\"name\":{},\"kernels\":[{}]}}\n", i,
                       double_quoted(program.works[i].name), kernels);
  }
  const Writer writer(program, out);
  for (const Call& call : program.calls) {
    std::visit(writer, call);
  }
}

}  // namespace offsim::runtime
