// megatrain: the model lives in CPU memory, layers stream through two GPU slots (source:
// infinity/model/cpu_master.py).
//
// Host, bytes a parameter: 2 weights, 2 gradients, moments 8 (deepspeed_adam, fp32) or 4
// (torch_fused, 16 bits), and every layer again in a pinned flat block, rounded to a power of two;
// 12 gradient slabs and 2 staging blocks of the largest layer, a slab each for the head and the
// embedding. GPU: embedding and head, two flat slots of the largest layer, two layer templates of
// each structure (layers with other tensors), checkpoints. Streams:
// compute, weights (H2D), gradients (D2H), and a worker thread that moves slabs into p.grad.
// Forward: layers stream in, a checkpoint every checkpoint_interval layers. Head in chunks of 128
// positions, each read by the host. Backward, by blocks of checkpoint_interval layers: recompute
// the block, then for each layer in reverse load it again, forward again with autograd, backward,
// gradients to a slab. Weights cross the link 3 times: 6 B a layer parameter; D2H 2 B. Layers run
// forward three times and backward once. Then, the GPU idle: clip (norms on one core), Adam,
// refresh, zero. variant paper: what the paper states instead (arXiv 2604.05091): weights cross
// twice, since a block's recomputation keeps its autograd graph (and its layers' weights); no
// pinned copy of all layers but a pool of 4 pinned slots that a thread of its own stages layers
// through; 12 B a parameter. Left out: several GPUs, vision towers, packed sequences.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/plans/checks.h"
#include "sim/plans/common.h"
#include "sim/plans/plans.h"

namespace offsim::plans {

using model::Tensor;
using runtime::Buffer;
using runtime::Event;
using runtime::kCompute;
using runtime::Lane;
using runtime::Phase;
using runtime::Recorder;
using runtime::Space;

namespace {

constexpr std::int64_t kHeadChunk = 128;  // positions
constexpr std::int64_t kPaperPool = 4;    // pinned staging slots of the paper's pool

class Megatrain {
 public:
  Megatrain(const Job& job, Recorder& gpu)
      : job_(job),
        gpu_(gpu),
        shape_(job.shape),
        pieces_(model::pieces(shape_, job.workload.batch(), model::Numerics::kPure16)),
        layers_(shape_.layers),
        interval_(job.options.count("checkpoint_interval")),
        paper_(job.options.text("variant") == "paper"),
        deepspeed_(job.options.text("optimizer") == "deepspeed_adam"),
        embedding_(model::embedding_tensors(shape_)),
        head_(model::tail_tensors(shape_)),
        weights_(gpu.stream("weights")),
        grads_(gpu.stream("gradients")),
        worker_(gpu.worker("gradient worker")),
        stager_(paper_ ? gpu.worker("weight stager") : worker_) {
    find_structures();
    place();
    const Event start = gpu_.record(kCompute);
    buffer_free_ = h2d_done_ = template_free_ = {start, start};
    for (Structure& structure : structures_) {
      structure.template_free.assign(static_cast<std::size_t>(templates(structure)), start);
    }
    for (std::int64_t i = 0; i < job.options.count("num_grad_slabs"); ++i) {
      slab_free_.push_back(gpu_.record(worker_));
    }
    head_slab_free_ = embedding_slab_free_ = gpu_.record(worker_);
  }

  void step(bool first) {
    for (std::int64_t micro = 0; micro < job_.workload.accumulation; ++micro) {
      first_micro_ = micro == 0;
      enter(job_, gpu_, Phase::kForward);
      forward();
      head_and_loss();
      enter(job_, gpu_, Phase::kBackward);
      for (std::int64_t end = layers_; end > 0;) {
        const std::int64_t begin = (end - 1) / interval_ * interval_;
        backward_block(begin, end);
        end = begin;
      }
      embedding_backward();
      gpu_.sync_device();
      locals_.insert(locals_.end(), checkpoints_.begin(), checkpoints_.end());
      checkpoints_.clear();
      for (const Buffer local : locals_) {
        gpu_.free(local);
      }
      gpu_.sync(worker_);
    }
    gpu_.phase(Phase::kOptimizer);
    optimizer_phase(first);
    gpu_.end_step();
  }

 private:
  // Layers of the same tensors, to the names of which their index does not matter.
  struct Structure {
    std::vector<Tensor> tensors;
    std::int64_t elements = 0, layers = 0;
    std::vector<Event> template_free = {};  // of the paper's

    Bytes bytes() const { return Bytes(2 * elements); }
  };
  // Which of them a layer is, and how many before it are the same.
  struct Place {
    std::size_t structure;
    std::int64_t ordinal;
  };

  void find_structures() {
    std::vector<std::size_t> of_kind(shape_.kinds.size(), shape_.kinds.size());
    for (std::int64_t layer = 0; layer < layers_; ++layer) {
      std::size_t& known = of_kind[shape_.kind_index(layer)];
      if (known == shape_.kinds.size()) {
        known = structure_of(model::layer_tensors(shape_, layer));
      }
      places_.push_back({known, structures_[known].layers++});
    }
  }
  std::size_t structure_of(const std::vector<Tensor>& tensors) {
    const auto alike = [&](const Structure& structure) {
      return std::ranges::equal(structure.tensors, tensors, {}, &Tensor::numel, &Tensor::numel);
    };
    const auto found = std::ranges::find_if(structures_, alike);
    const auto at = static_cast<std::size_t>(found - structures_.begin());
    if (found == structures_.end()) {
      structures_.push_back({tensors, count(tensors)});
    }
    return at;
  }

  static std::size_t slot(std::int64_t layer) { return static_cast<std::size_t>(layer % 2); }
  // Layers whose weights the GPU holds as modules: two in turn; a block whose autograd graph is
  // kept needs all of its layers' weights until its backward.
  std::int64_t templates(const Structure& of) const {
    return paper_ ? std::clamp<std::int64_t>(interval_, 2, std::max<std::int64_t>(2, of.layers))
                  : 2;
  }
  Structure& structure(std::int64_t layer) {
    return structures_[places_[static_cast<std::size_t>(layer)].structure];
  }
  Event& template_free(std::int64_t layer) {
    if (!paper_) {  // the code has two events, whatever the structure
      return template_free_[slot(layer)];
    }
    Structure& of = structure(layer);
    const std::int64_t ordinal = places_[static_cast<std::size_t>(layer)].ordinal;
    return of.template_free[static_cast<std::size_t>(ordinal % templates(of))];
  }
  Bytes largest_layer() const {
    return std::ranges::max(structures_, {}, &Structure::elements).bytes();
  }
  Buffer hold(Bytes bytes, std::string_view tag) { return gpu_.allocate(Space::kGpu, bytes, tag); }
  void place() {
    const std::int64_t n = model::parameters(shape_);
    gpu_.allocate(Space::kPageable, Bytes(2 * n), "weights");
    const std::int64_t flats = paper_ ? kPaperPool : layers_;
    for (std::int64_t i = 0; i < flats; ++i) {
      gpu_.allocate(Space::kPinned, paper_ ? largest_layer() : structure(i).bytes(),
                    paper_ ? "pinned staging pool" : "pinned layer copies");
    }
    const std::int64_t slabs = job_.options.count("num_grad_slabs") + (paper_ ? 0 : 2);
    for (std::int64_t i = 0; i < slabs; ++i) {
      gpu_.allocate(Space::kPinned, largest_layer(), "gradient slabs");
    }
    // The head's slab has room for its matrix although a tied one's gradient is the embedding's.
    gpu_.allocate(Space::kPinned,
                  Bytes(2 * (count(head_) + (shape_.tied ? shape_.head_elements() : 0))),
                  "gradient slabs");
    gpu_.allocate(Space::kPinned, Bytes(2 * count(embedding_)), "gradient slabs");
    hold(Bytes(2 * (count(embedding_) + count(head_))), "embedding and head");
    hold(2 * largest_layer(), "flat layer slots");
    for (const Structure& structure : structures_) {
      hold(templates(structure) * structure.bytes(), "layer templates");
    }
    place_workspace(job_, gpu_);
  }

  // LOAD: the layer's flat block into its slot. The host waits until the slot's last copy is done.
  void load(std::int64_t layer) {
    const std::size_t s = slot(layer);
    gpu_.sync(h2d_done_[s]);
    gpu_.wait(weights_, buffer_free_[s]);
    if (paper_) {  // staged from pageable memory into a pinned slot of the pool first
      gpu_.cpu("copy_bf16", structure(layer).elements, "stage weights", {.thread = stager_});
      gpu_.wait(weights_, gpu_.record(stager_));
    }
    gpu_.copy_h2d(weights_, Space::kPinned, structure(layer).bytes(), "weights");
    h2d_done_[s] = gpu_.record(weights_);
  }

  // UNFLATTEN: from the slot into the template, one copy a tensor; frees the slot before the
  // layer's math.
  void unflatten(std::int64_t layer) {
    const std::size_t s = slot(layer);
    gpu_.wait(kCompute, template_free(layer));
    const Structure& of = structure(layer);
    const std::string name =
        structures_.size() == 1 ? "unflatten" : sized("unflatten", of.elements);
    gpu_.launch(model::elementwise(name, of.elements, 4, static_cast<int>(of.tensors.size())));
    buffer_free_[s] = gpu_.record(kCompute);
  }

  void bring(std::int64_t layer) {
    load(layer);
    use(layer);
  }
  void use(std::int64_t layer) {
    gpu_.wait(kCompute, h2d_done_[slot(layer)]);
    unflatten(layer);
  }

  void forward() {
    gpu_.wait(
        kCompute,
        gpu_.record(kCompute));  // param_sync: embedding and head of the last step are in line
    gpu_.launch(pieces_.embedding.forward);
    load(0);
    gpu_.sync(weights_);  // the first transfer is exposed
    unflatten(0);
    Buffer hidden = hold(pieces_.hidden, "hidden");
    for (std::int64_t layer = 0; layer < layers_; ++layer) {
      const bool keep = layer % interval_ == 0;
      if (keep) {
        checkpoints_.push_back(hidden);
      }
      if (layer + 1 < layers_) {
        load(layer + 1);
      }
      use(layer);
      gpu_.free(hold(pieces_.layer(layer).forward_alone, "activations"));
      gpu_.launch(pieces_.layer(layer).forward);
      const Buffer out = hold(pieces_.hidden, "hidden");
      if (!keep) {
        gpu_.free(hidden);
      }
      hidden = out;
    }
    checkpoints_.push_back(hidden);  // the final hidden state
  }

  // The head in chunks of positions; every chunk's log-softmax stays in the graph until the
  // backward.
  void head_and_loss() {
    const std::int64_t positions = std::max<std::int64_t>(1, job_.workload.sequence - 1);
    std::vector<HeadChunk> chunks;
    for (std::int64_t done = 0; done < positions; done += kHeadChunk) {
      chunks.push_back(
          head_chunk(job_.workload.micro_batch * std::min(kHeadChunk, positions - done)));
    }
    const std::int64_t tokens = job_.workload.batch().tokens();
    const std::int64_t chunk_tokens =
        job_.workload.micro_batch * std::min(kHeadChunk, positions);  // of the largest
    // Of the norm: fp32 input and scaled value in its graph; two results, of which one was never
    // used, stay local variables.
    const Buffer norm = hold(3 * pieces_.hidden, "head");
    locals_ = {hold(2 * pieces_.hidden, "local variables of the head")};
    const model::Module& final_norm = pieces_.head.modules.front();
    gpu_.launch(final_norm.forward);  // without autograd; nobody uses it
    gpu_.launch(final_norm.forward);
    const Buffer graph = hold(Bytes(2 * tokens * shape_.vocabulary), "logits and loss");
    for (const HeadChunk& chunk : chunks) {
      gpu_.free(hold(Bytes(2 * chunk_tokens * shape_.vocabulary), "logits and loss"));
      gpu_.launch(chunk.forward);
      gpu_.read_result();  // .item() on the number of valid tokens
    }
    gpu_.read_result();  // and on the loss
    enter(job_, gpu_, Phase::kBackward);
    locals_.push_back(hold(Bytes(2 * chunk_tokens * shape_.vocabulary),
                           "local variables of the head"));  // last logits
    head_gradients_ = hold(Bytes(2 * count(head_)), "head gradients");
    if (shape_.tied) {  // in the embedding's .grad, which the embedding's backward adds to
      tied_gradient_ = hold(Bytes(2 * count(embedding_)), "embedding gradients");
    }
    gpu_.free(
        hold(Bytes(4 * chunk_tokens * shape_.vocabulary + 2 * count(head_)), "logits and loss"));
    for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) {
      gpu_.launch(chunk->backward);
    }
    gpu_.launch(final_norm.backward);
    gpu_.free(graph);
    gpu_.free(norm);
    // The final hidden state's .grad stays with it until all checkpoints go.
    locals_.push_back(hold(pieces_.hidden, "hidden"));
    grad_hidden_ = hold(pieces_.hidden, "hidden");
    collect(head_, "head gradients", head_slab_free_);
    gpu_.free_after(head_gradients_, grads_);
  }

  struct HeadChunk {
    model::Work forward, backward;
  };

  // Torch's cross entropy on 16-bit logits: log-softmax in place of the logits, picked and summed.
  HeadChunk head_chunk(std::int64_t tokens) const {
    const model::Kernel product{.kind = model::Kernel::Kind::kGemm,
                                .m = tokens,
                                .n = shape_.vocabulary,
                                .k = shape_.embedding_width()};
    const model::Kernel input{.kind = model::Kernel::Kind::kGemm,
                              .m = tokens,
                              .n = shape_.embedding_width(),
                              .k = shape_.vocabulary};
    const model::Kernel weight{.kind = model::Kernel::Kind::kGemm,
                               .m = shape_.vocabulary,
                               .n = shape_.embedding_width(),
                               .k = tokens};
    const std::int64_t logits = tokens * shape_.vocabulary;
    const std::int64_t all = job_.workload.batch().tokens() * shape_.embedding_width();
    const std::int64_t part = tokens * shape_.embedding_width();
    HeadChunk chunk;
    chunk.forward = {
        sized("head chunk forward", tokens, "tokens"),
        {{.bytes = 4 * part, .indexed = part}, product, {.bytes = 6 * logits}, {.count = 8}}};
    // Zeros for the picked logits' gradient, softmax's backward, both products, sums into the
    // weight's and input's gradients.
    chunk.backward = {sized("head chunk backward", tokens, "tokens"),
                      {{.bytes = 2 * logits},
                       {.bytes = 8 * logits},
                       weight,
                       input,
                       {.bytes = 6 * shape_.head_elements()},
                       {.bytes = 2 * all},
                       {.bytes = 4 * part, .indexed = part},
                       {.bytes = 6 * all},
                       {.count = 6}}};
    return chunk;
  }

  void backward_block(std::int64_t begin, std::int64_t end) {
    std::vector<Buffer> recomputed;  // outputs of layers begin ... end - 1
    for (std::int64_t layer = begin; layer < end; ++layer) {
      const model::Piece& piece = pieces_.layer(layer);
      bring(layer);
      if (paper_) {
        saved_.push_back(hold(piece.saved, "activations"));
      } else {
        gpu_.free(hold(piece.forward_alone, "activations"));
      }
      gpu_.launch(piece.forward);
      recomputed.push_back(hold(pieces_.hidden, "recompute cache"));
    }
    for (std::int64_t layer = end - 1; layer >= begin; --layer) {
      const model::Piece& piece = pieces_.layer(layer);
      if (!paper_) {
        bring(layer);
        saved_.push_back(hold(piece.saved, "activations"));
        gpu_.launch(piece.forward);
      }
      // The gradient that comes in is held already.
      gpu_.free(hold(piece.backward_extra - pieces_.hidden, "activations"));
      const Buffer gradients = hold(structure(layer).bytes(), "layer gradients");
      gpu_.launch(piece.backward);
      gpu_.free(saved_.back());
      saved_.pop_back();
      collect_layer(layer, gradients);
      gpu_.free(recomputed.back());
      recomputed.pop_back();
    }
  }

  // COLLECT: gradients of a layer to a free slab, one copy a tensor; the host waits for the slab.
  void collect_layer(std::int64_t layer, Buffer gradients) {
    collect(structure(layer).tensors, "layer gradients", slab_free_[next_slab_]);
    next_slab_ = (next_slab_ + 1) % slab_free_.size();
    template_free(layer) = gpu_.record(grads_);
    gpu_.free_after(gradients, grads_);
  }

  // D2H of the tensors' gradients, then the worker's copy into p.grad (fresh pages) or its
  // addition.
  void collect(const std::vector<Tensor>& tensors, std::string_view what, Event& slab_free) {
    gpu_.sync(slab_free);
    gpu_.wait(grads_, gpu_.record(kCompute));
    for (const Tensor& tensor : tensors) {
      gpu_.copy_d2h(grads_, Space::kPinned, Bytes(2 * tensor.numel()), what);
    }
    gpu_.wait(worker_, gpu_.record(grads_));
    for (const Tensor& tensor : tensors) {
      if (first_micro_) {
        const Buffer grad =
            gpu_.allocate(Space::kPageable, Bytes(2 * tensor.numel()), "gradients", worker_);
        gradients_.push_back(grad);
        gpu_.cpu("copy_bf16", tensor.numel(), "gradients into p.grad",
                 {.thread = worker_, .into = grad});
      } else {
        gpu_.cpu("add_bf16", tensor.numel(), "add gradients", {.thread = worker_});
      }
    }
    slab_free = gpu_.record(worker_);
  }

  void embedding_backward() {
    gpu_.launch(pieces_.embedding.forward);
    const Buffer gradients = hold(Bytes(2 * count(embedding_)), "embedding gradients");
    gpu_.launch(pieces_.embedding.backward);
    if (tied_gradient_) {
      gpu_.launch(add_tied_gradient(Bytes(2 * shape_.vocabulary * shape_.hidden)));
      gpu_.free(*tied_gradient_);
      tied_gradient_.reset();
    }
    gpu_.free(grad_hidden_);
    collect(embedding_, "embedding gradients", embedding_slab_free_);
    gpu_.free_after(gradients, grads_);
  }

  // Everything on the CPU, tensor by tensor, in series.
  void optimizer_phase(bool first) {
    const std::int64_t n = model::parameters(shape_);
    if (first) {
      gpu_.allocate(Space::kPageable, Bytes((deepspeed_ ? 8 : 4) * n), "Adam states");
    }
    if (job_.options.flag("gradient_clipping")) {
      each_tensor("norm_bf16", "clip");
      each_tensor("mul_bf16", "clip");
    }
    each_tensor(deepspeed_ ? "adam_deepspeed_bf16" : "adam_torch_fused_bf16", "Adam");
    if (!paper_) {
      each_layer_tensor("copy_bf16", "refresh pinned copies");
    }
    gpu_.copy_h2d(kCompute, Space::kPageable, Bytes(2 * count(embedding_)), "embedding and head");
    gpu_.copy_h2d(kCompute, Space::kPageable, Bytes(2 * count(head_)), "embedding and head");
    each_tensor("zero_bf16", "zero gradients");
    for (const Buffer gradient : gradients_) {
      gpu_.free(gradient);
    }
    gradients_.clear();
  }

  void each_tensor(std::string_view kernel, std::string_view what) {
    each_layer_tensor(kernel, what);
    for (const std::vector<Tensor>* tensors : {&embedding_, &head_}) {
      for (const Tensor& tensor : *tensors) {
        gpu_.cpu(kernel, tensor.numel(), what);
      }
    }
  }
  void each_layer_tensor(std::string_view kernel, std::string_view what) {
    for (const Structure& of : structures_) {
      for (const Tensor& tensor : of.tensors) {
        gpu_.cpu(kernel, tensor.numel() * of.layers, what, {.calls = of.layers});
      }
    }
  }

  const Job& job_;
  Recorder& gpu_;
  const model::Shape& shape_;
  model::Pieces pieces_;
  std::int64_t layers_, interval_;
  bool paper_, deepspeed_;
  std::vector<Tensor> embedding_, head_;
  std::vector<Structure> structures_;
  std::vector<Place> places_;  // of the layers
  Lane weights_, grads_, worker_, stager_;
  std::array<Event, 2> buffer_free_{}, h2d_done_{}, template_free_{};
  Event head_slab_free_{}, embedding_slab_free_{};
  std::vector<Event> slab_free_;
  std::size_t next_slab_ = 0;
  bool first_micro_ = true;
  std::vector<Buffer> checkpoints_, saved_, gradients_, locals_;
  Buffer head_gradients_{}, grad_hidden_{};
  std::optional<Buffer> tied_gradient_;
};

}  // namespace

std::vector<std::string> check_megatrain(const Job& job) {
  refuse_adapters(job, "it has a gradient for every weight of a layer");
  refuse_activation_offload(job, "it keeps its checkpoints on the GPU");
  std::vector<std::string> warnings;
  require_precision(job, {Precision::kBf16Mixed, Precision::kBf16, Precision::kFp16Mixed},
                    "bf16-mixed or bf16: it keeps 16-bit weights");
  if (job.workload.precision == Precision::kBf16) {
    warnings.emplace_back(
        "precision bf16 is as bf16-mixed: megatrain's weights and gradients are 16-bit in both, "
        "and megatrain.optimizer decides about the moments");
  }
  if (job.workload.checkpointing == Checkpointing::kFull) {
    warnings.emplace_back(
        "checkpointing has no effect: megatrain recomputes by its own checkpoint_interval");
  }
  const std::int64_t interval = job.options.count("checkpoint_interval");
  if (job.options.given("checkpoint_interval") && interval > job.shape.layers) {
    warnings.push_back(fmt::format("megatrain.checkpoint_interval {} is as {}, all of the layers",
                                   interval, job.shape.layers));
  }
  return warnings;
}

void record_megatrain(const Job& job, Recorder& gpu, int steps) {
  record_steps(Megatrain(job, gpu), steps);
}

}  // namespace offsim::plans
