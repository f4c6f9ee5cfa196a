#include "minim/tools/run.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "minim/core/parallel.h"
#include "minim/models/atomic_dir.h"
#include "minim/models/read_file.h"
#include "minim/models/run_log.h"
#include "minim/models/sync_file.h"
#include "minim/optim/gradient_statistics.h"
#include "minim/tools/profile_report.h"
#include "minim/tools/run_dir.h"
#include "minim/tools/signals.h"
#include "minim/tools/trainer.h"

namespace minim {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

size_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return size_t(usage.ru_maxrss) * 1024;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Whether the run there got to its last step and wrote how it ended.
bool is_finished(const fs::path& dir, int64_t steps) {
  std::ifstream file(dir / "summary.json");
  nlohmann::json summary = nlohmann::json::parse(file, nullptr, false);
  return summary.is_object() && summary.contains("steps") && summary["steps"] == steps;
}

nlohmann::ordered_json record_of(const StepReport& r) {
  nlohmann::ordered_json j{{"step", r.step},
                           {"loss", r.loss},
                           {"lr", r.lr},
                           {"grad_norm", r.grad_norm},
                           {"clipped", r.clipped_norm},
                           {"scale", r.scale},
                           {"skipped", r.skipped},
                           {"skip_share", r.skip_share},
                           {"max_logit", r.max_logit},
                           {"tokens_per_second", r.tokens_per_second}};
  if (r.has_floor) j["above_floor"] = r.above_floor;
  return j;
}

/// {"NAME": {"norm": ..., "max": ..., "nonzero": ..., "nonfinite": ...}, ...}: unscaled, before
/// clipping.
nlohmann::ordered_json gradients_of(const models::Decoder& model) {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (const auto& g : optim::gradient_statistics(model.parameters()))
    all[g.name] = {{"norm", g.norm},
                   {"max", g.max_abs},
                   {"nonzero", g.nonzero_share},
                   {"nonfinite", g.nonfinite}};
  return all;
}

std::string summary_json(const Summary& s) {
  nlohmann::ordered_json j{{"steps", s.steps},
                           {"train_loss", s.train_loss},
                           {"val_loss", s.val_loss},
                           {"val_tokens", s.val_tokens},
                           {"tokens_per_second", s.tokens_per_second},
                           {"skipped_steps", s.skipped_steps},
                           {"final_scale", s.final_scale},
                           {"precision", s.precision},
                           {"params", s.params},
                           {"peak_bytes", s.peak_bytes},
                           {"peak_resident_bytes", s.peak_resident_bytes},
                           {"underflow_share", s.underflow_share},
                           {"finished", s.finished}};
  if (s.floor) {
    j["floor"] = *s.floor;
    j["val_above_floor"] = s.val_loss - *s.floor;
  }
  for (size_t k = 0; k < kMemoryKinds; ++k)
    j["peak_bytes_by_kind"][name_of(MemoryKind(k))] = s.peak_by_kind[k];
  return j.dump(2) + "\n";
}

/// " (0.1234 above the floor)" where the floor is known.
std::string above(const std::optional<double>& floor, double loss) {
  return floor ? fmt::format(" ({} above the floor)", number(loss - *floor, ".4f")) : "";
}

/// What the files of --data show unread, before a directory is made or held for a run of them.
void check_files(const TrainConfig& c) {
  if (c.input.is_toy()) return;
  if (c.input.val_data != "none") models::check_file(c.input.val_data, "data");
  double bytes = 0;
  bool is_known = !c.input.tokenizer.ends_with(".model");  // it may make more tokens than bytes
  for (const std::string& file : c.input.data) {
    models::check_file(file, "data");
    is_known = is_known && fs::is_regular_file(file);
    if (is_known) bytes += double(fs::file_size(file));
  }
  const double most = bytes / (c.input.is_tokens() ? 2 : 1), part = 1 - c.input.val_fraction;
  if (is_known && most * (c.input.val_data == "none" ? part : 1) <= double(c.model.block))
    Trainer{c};  // says what is wrong with so few
}

/// Whether the trace can be written, or can be once the run's directory is there: asked before
/// anything is moved or made.
void check_trace(const fs::path& trace, const fs::path& run, const TrainConfig::Input& input) {
  const auto whole = [](const fs::path& p) { return fs::weakly_canonical(fs::absolute(p)); };
  const fs::path parent = models::parent_of(trace);
  std::error_code none;
  const bool is_possible =
      whole(parent) == whole(run) ||
      (fs::is_directory(parent, none) &&
       ::access((fs::exists(trace, none) ? trace : parent).c_str(), W_OK) == 0);
  if (!is_possible || fs::is_directory(trace, none))
    fail("'", trace.string(),
         "' (profile-trace) cannot be written: give a path in a directory that exists");
  std::vector<std::string> read = input.data;
  read.insert(read.end(), {input.val_data, input.tokenizer});
  const bool is_read = std::ranges::any_of(
      read, [&](const fs::path& file) { return fs::equivalent(trace, file, none); });
  constexpr const char* kOwn[] = {"config.toml", "log.jsonl", "summary.json", "lock"};
  const bool is_own =
      whole(parent) == whole(run) && (std::ranges::count(kOwn, trace.filename().string()) > 0 ||
                                      trace.filename().string().starts_with("checkpoint"));
  if (is_read || is_own)
    fail("'", trace.string(), "' (profile-trace) is ",
         is_read ? "a file that the run reads" : "one of the run's own files",
         ": give another path");
}

/// The loop around Trainer: log, live line, validations and checkpoints.
class Loop {
 public:
  Loop(const TrainConfig& config, Trainer& trainer, const fs::path& dir, std::ostream& out,
       int64_t saved)
      : config_(config),
        trainer_(trainer),
        dir_(dir),
        out_(out),
        log_(dir / "log.jsonl"),
        progress_(out, is_terminal(STDOUT_FILENO) && &out == &std::cout, config.run.log_every),
        first_(trainer.step_count()),
        saved_(saved) {}

  /// To the last step, a signal or the loss of `out`; then everything is saved, and so it is, as
  /// far as possible, when a step or the log fails.
  void run(Summary& s) try {
    while (trainer_.step_count() < config_.train.steps && !stop_requested() && out_) {
      const auto start = Clock::now();
      std::optional<StepReport> report = trainer_.step();
      seconds_ += seconds_since(start);
      if (report) follow(*report, s);
    }
    save();
  } catch (...) {
    try {
      save();
      progress_.note(fmt::format("saved at step {}", saved_));
    } catch (const std::exception&) {
    }  // the first error says more
    throw;
  }

  void validate(Summary& s) {
    const models::Evaluation e = trainer_.evaluate();
    s.val_loss = e.loss;
    s.val_tokens = e.tokens;
    log_.append({{"step", s.steps}, {"val_loss", e.loss}, {"final", true}});
  }

  void note(const std::string& text) { progress_.note(text); }

 private:
  void follow(StepReport& r, Summary& s) {
    const int64_t done = r.step - first_;
    s.train_loss = r.loss;
    s.tokens_per_second = r.tokens_per_second =
        double(done * trainer_.tokens_per_step()) / seconds_;
    r.steps = config_.train.steps;
    r.seconds_left = seconds_ / double(done) * double(r.steps - r.step);
    if (!r.note.empty()) note(r.note);
    if (std::isfinite(r.loss))
      s.nonfinite_since = 0;
    else if (s.nonfinite_since == 0)
      s.nonfinite_since = r.step;
    progress_.report(r);
    const bool last = r.step == r.steps;
    const auto is_due = [&](int64_t every) { return every > 0 && r.step % every == 0; };
    if (is_due(config_.run.log_every) || last) {
      nlohmann::ordered_json record = record_of(r);
      if (config_.run.grad_stats) record["gradients"] = gradients_of(trainer_.model());
      log_.append(record);
    }
    if (is_due(config_.run.eval_every) && !last) {
      const models::Evaluation e = trainer_.evaluate();
      log_.append({{"step", r.step}, {"val_loss", e.loss}});
      note(fmt::format("step {}: validation loss {}{}", r.step, number(e.loss, ".4f"),
                       above(s.floor, e.loss)));
    }
    if (is_due(config_.run.checkpoint_every)) save();
  }

  void save() {
    if (saved_ == trainer_.step_count()) return;
    trainer_.save(dir_);
    saved_ = trainer_.step_count();
  }

  const TrainConfig& config_;
  Trainer& trainer_;
  fs::path dir_;
  std::ostream& out_;
  models::RunLog log_;
  Progress progress_;
  int64_t first_, saved_;
  double seconds_ = 0;
};

/// Where the time of the steps went. What cannot be told does not fail a run that is done.
void tell(const Profile& p, const Trainer& trainer, int64_t steps, const std::string& file,
          std::ofstream& trace, Loop& loop) {
  if (steps > 0) loop.note(profile_report(p, steps) + denormal_report(p, trainer.optimizer()));
  if (!trace.is_open()) return;
  write_trace(p, trace);
  if (!trace.flush())
    loop.note("'" + file + "' (profile-trace) cannot be written; the run goes on without it");
  else if (p.spans_left_out() > 0)
    loop.note(fmt::format("the trace is of the first {} scopes; {} are left out", p.spans().size(),
                          p.spans_left_out()));
}

}  // namespace

Summary run_training(const TrainPlan& plan, std::ostream& out) {
  const TrainConfig& c = plan.config;
  const DeviceScope on(device_named(c.run.device));
  set_threads(int(c.run.threads));
  memory::reset_peak();
  check_files(c);
  RunDirectory held(c.run.out);
  const fs::path& dir = held.path();
  Trainer trainer(c);
  const bool resumed = !c.resume.empty();
  const std::string told = resumed ? trainer.resume(c.resume) : "";
  const int64_t first = trainer.step_count();
  Summary s{.steps = first,
            .params = trainer.model().numel(),
            .train_loss = trainer.loss(),
            .floor = trainer.floor(),
            .precision = c.amp.precision};
  std::error_code not_there;
  const bool in_place = resumed && fs::equivalent(c.resume, dir, not_there);
  if (first > c.train.steps)
    fail("'", c.resume, "' has done ", first, " steps, more than steps = ", c.train.steps, " (",
         source_of(plan.sources, "steps"), "): a larger --steps goes on");
  if (in_place && first == c.train.steps && is_finished(dir, first)) {
    out << fmt::format("{} is finished at step {}; a larger --steps goes on\n", dir.string(),
                       first);
    return s;
  }
  const bool traced = c.run.profile_trace != "none";
  if (traced) check_trace(c.run.profile_trace, dir, c.input);
  if (in_place)
    held.keep();
  else
    held.begin(c.input.data, out);
  models::AtomicDirectory(dir / "checkpoint");  // what forbids a save is told before the training
  models::write_file_atomically(dir / "config.toml", to_toml(plan));
  models::truncate_to_step(dir / "log.jsonl", first);
  std::ofstream trace;
  if (traced) {
    trace.open(c.run.profile_trace);
    if (!trace)
      fail("'", c.run.profile_trace, "' (profile-trace) cannot be written: ", std::strerror(errno));
  }
  catch_stop_signals();

  out << fmt::format("{} parameters, {}, {} training and {} validation tokens of {}\n", s.params,
                     amp::describe(trainer.precision()), trainer.data().train.size(),
                     trainer.data().val.size(), trainer.data().source);
  if (!told.empty()) out << told << '\n';
  if (resumed) out << fmt::format("resumed at step {}\n", first);
  out.flush();

  Loop loop(c, trainer, dir, out, in_place ? first : -1);
  loop.run(s);
  s.finished = trainer.step_count() >= c.train.steps;
  s.steps = trainer.step_count();
  s.skipped_steps = trainer.skipped();
  s.final_scale = trainer.scaler().scale();
  s.underflow_share = trainer.underflow().share();
  const MemoryStats memory_used = memory::stats();
  s.peak_bytes = memory_used.total.peak;
  for (size_t k = 0; k < kMemoryKinds; ++k) s.peak_by_kind[k] = memory_used.by_kind[k].peak;
  if (const Profile* p = trainer.profile())
    tell(*p, trainer, s.steps - first, c.run.profile_trace, trace, loop);
  s.peak_resident_bytes = peak_resident_bytes();
  if (!s.finished) {
    const std::string text = fmt::format(
        "stopped and saved at step {}; go on with: minim train --resume {}", s.steps, dir.string());
    if (!out) std::cerr << "minim: " << text << '\n';
    loop.note(text);
    return s;
  }
  loop.validate(s);
  models::write_file_atomically(dir / "summary.json", summary_json(s));
  const std::string lost =
      is_half(trainer.precision().compute)
          ? fmt::format("; {:.2f} % of gradient entries lost to 0", 100 * s.underflow_share)
          : "";
  loop.note(memory_report(memory_used));
  loop.note(fmt::format(
      "validation loss {} over {} tokens{}; {:.0f} tokens/s; {} skipped steps{}; written to {}",
      number(s.val_loss, ".4f"), s.val_tokens, above(s.floor, s.val_loss), s.tokens_per_second,
      s.skipped_steps, lost, dir.string()));
  return s;
}

}  // namespace minim
