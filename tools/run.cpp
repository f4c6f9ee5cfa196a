#include "minim/tools/run.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fmt/format.h>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "minim/core/parallel.h"
#include "minim/models/atomic_dir.h"
#include "minim/models/run_log.h"
#include "minim/models/sync_file.h"
#include "minim/optim/gradient_statistics.h"
#include "minim/tools/signals.h"
#include "minim/tools/trainer.h"

namespace minim {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

size_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return size_t(usage.ru_maxrss) * 1024;
}

/// A run that is there already keeps its files: its directory gets the first free number.
void move_aside(const fs::path& dir, std::ostream& out) {
  if (!fs::exists(dir / "config.toml") && !fs::exists(dir / "checkpoint")) return;
  int n = 1;
  while (fs::exists(dir.string() + "." + std::to_string(n))) ++n;
  fs::path aside = dir.string() + "." + std::to_string(n);
  fs::rename(dir, aside);
  out << fmt::format("{} held a run already; it is now {}\n", dir.string(), aside.string());
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
  return j.dump(2) + "\n";
}

std::string loss_text(double loss, std::optional<double> floor) {
  return number(loss, ".4f") +
         (floor ? " (" + number(loss - *floor, ".4f") + " above the floor)" : "");
}

}  // namespace

Summary run_training(const TrainPlan& plan, std::ostream& out) {
  const TrainConfig& c = plan.config;
  device_named(c.run.device);
  set_threads(int(c.run.threads));
  memory::reset_peak();
  Trainer trainer(c);
  fs::path dir = c.run.out;
  bool resumed = !c.resume.empty();
  std::string damage = resumed ? trainer.resume(c.resume) : "";
  Summary s{.steps = trainer.step_count(),
            .params = trainer.model().numel(),
            .train_loss = trainer.loss(),
            .floor = trainer.floor(),
            .precision = c.amp.precision};
  bool in_place = resumed && fs::weakly_canonical(c.resume) == fs::weakly_canonical(dir);
  if (in_place && trainer.step_count() >= c.train.steps && is_finished(dir, trainer.step_count())) {
    out << fmt::format("{} is finished at step {}; a larger --steps goes on\n", dir.string(),
                       trainer.step_count());
    return s;
  }
  if (!in_place) move_aside(dir, out);
  fs::create_directories(dir);
  models::AtomicDirectory(dir / "checkpoint");  // what forbids a save is told before the training
  models::write_file_atomically(dir / "config.toml", to_toml(plan));
  models::truncate_to_step(dir / "log.jsonl", trainer.step_count());
  models::RunLog log(dir / "log.jsonl");
  catch_stop_signals();

  out << fmt::format("{} parameters, {}, {} training and {} validation tokens of {}\n",
                     trainer.model().numel(), amp::describe(trainer.precision()),
                     trainer.data().train.size(), trainer.data().val.size(), trainer.data().source);
  if (!damage.empty()) out << damage << '\n';
  if (resumed) out << fmt::format("resumed at step {}\n", trainer.step_count());
  out.flush();

  Progress progress(out, is_terminal(STDOUT_FILENO) && &out == &std::cout, c.run.log_every);
  int64_t first = trainer.step_count(), saved = in_place ? first : -1;
  double training_seconds = 0;
  while (trainer.step_count() < c.train.steps && !stop_requested()) {
    auto start = Clock::now();
    StepReport report = trainer.step();
    training_seconds += seconds_since(start);
    int64_t done = report.step - first;
    s.train_loss = report.loss;
    s.tokens_per_second = report.tokens_per_second =
        double(done * trainer.tokens_per_step()) / training_seconds;
    report.steps = c.train.steps;
    report.seconds_left = training_seconds / double(done) * double(c.train.steps - report.step);
    if (!report.note.empty()) progress.note(report.note);
    progress.report(report);
    bool last = report.step == c.train.steps;
    if (report.step % c.run.log_every == 0 || last) {
      nlohmann::ordered_json record = record_of(report);
      if (c.run.grad_stats) record["gradients"] = gradients_of(trainer.model());
      log.append(record);
    }
    if (c.run.eval_every > 0 && report.step % c.run.eval_every == 0 && !last) {
      models::Evaluation e = trainer.evaluate();
      log.append({{"step", report.step}, {"val_loss", e.loss}});
      progress.note(
          fmt::format("step {}: validation loss {}", report.step, loss_text(e.loss, s.floor)));
    }
    if (c.run.checkpoint_every > 0 && report.step % c.run.checkpoint_every == 0) {
      trainer.save(dir);
      saved = report.step;
    }
  }
  if (saved != trainer.step_count()) trainer.save(dir);
  s.finished = trainer.step_count() >= c.train.steps;
  s.steps = trainer.step_count();
  s.skipped_steps = trainer.skipped();
  s.final_scale = trainer.scaler().scale();
  s.underflow_share = trainer.underflow().share();
  s.peak_bytes = memory::stats().total.peak;
  s.peak_resident_bytes = peak_resident_bytes();
  if (!s.finished) {
    progress.note(fmt::format("stopped and saved at step {}; go on with: minim train --resume {}",
                              s.steps, dir.string()));
    return s;
  }
  models::Evaluation e = trainer.evaluate();
  s.val_loss = e.loss;
  s.val_tokens = e.tokens;
  log.append({{"step", s.steps}, {"val_loss", e.loss}, {"final", true}});
  models::write_file_atomically(dir / "summary.json", summary_json(s));
  progress.note(fmt::format(
      "validation loss {} over {} tokens; {:.0f} tokens/s; {} skipped steps; written to {}",
      loss_text(e.loss, s.floor), e.tokens, s.tokens_per_second, s.skipped_steps, dir.string()));
  return s;
}

}  // namespace minim
