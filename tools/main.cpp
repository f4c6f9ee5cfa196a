// tools/main.cpp -- the command `minim`: finds the subcommand, and turns an Error into one message
// and exit status 2.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "minim/core/error.h"
#include "minim/models/reason.h"
#include "minim/tools/commands.h"
#include "minim/tools/nearest.h"
#include "minim/tools/signals.h"

namespace minim {
namespace {

struct Command {
  std::string_view name, help;
  int (*run)(Args);
};

constexpr Command kCommands[] = {
    {"train", "train a GPT, in any precision", cmd_train},
    {"sample", "write text with a trained model", cmd_sample},
    {"eval", "measure a trained model's loss on a text", cmd_eval},
    {"data", "inspect texts and token files, or turn texts into a token file", cmd_data},
    {"ops", "list the operations and what autocast does to each", cmd_ops},
    {"info", "show this machine and the paths that each number format takes on it", cmd_info},
    {"bench", "measure this machine, and how much of it minim gets", cmd_bench},
    {"quickstart", "train the toy language in four precisions and compare", cmd_quickstart},
};

std::string usage() {
  std::string text =
      "minim trains small Transformers in mixed precision.\n\nUsage: minim COMMAND [FLAGS]\n\n";
  for (const Command& command : kCommands)
    text += fmt::format("  {:<12}{}\n", command.name, command.help);
  return text +
         "\nminim help COMMAND explains a command's flags; minim --version tells the version.\n";
}

const Command& find_command(const std::string& name) {
  const auto found = std::ranges::find(kCommands, name, &Command::name);
  if (found != std::end(kCommands)) return *found;
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) names.push_back(command.name);
  const std::string_view meant = nearest(name, names);
  fail("unknown command '", name, "'; ",
       meant.empty() ? "minim --help lists all there are" : fmt::format("did you mean {}?", meant));
}

int dispatch(const std::vector<std::string>& words) {
  const std::string first = words.empty() ? "" : words[0];
  if (first.empty()) {
    std::cerr << usage();
    return 2;
  }
  if (first == "--version") {
    std::cout << "minim " << kVersion << '\n';
    return 0;
  }
  const bool help = first == "help" || first == "--help" || first == "-h";
  if (help && words.size() == 1) {
    std::cout << usage();
    return 0;
  }
  if (help) return find_command(words[1]).run(std::vector<std::string>{"--help"});
  return find_command(first).run(Args(words).subspan(1));
}

/// The library lists differences one a line; here a failure is one line, for logs and scripts.
std::string on_one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (c == ' ' && line.ends_with(' ')) continue;
    if (c == '\n' && !line.ends_with(':')) line += ';';
    line += c == '\n' ? ' ' : c;
  }
  return line;
}

int report(std::string_view message, int status) {
  std::cerr << "minim: " << on_one_line(message) << '\n';
  return status;
}

constexpr std::string_view kNoMemory =
    "error: out of memory: take a smaller model, batch, block or text";

/// A file that is opened later must not become the standard output because that was closed.
void open_standard_files() {
  for (int file = 0; file <= 2; ++file)
    if (::fcntl(file, F_GETFD) == -1 && ::open("/dev/null", O_RDWR) == -1) return;
}

const char* why_no_output() {
  pollfd out{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  const bool closed = ::poll(&out, 1, 0) == 1 && out.revents & POLLERR;
  return closed ? "error: standard output could not be written: who read it has closed the pipe"
                : "error: standard output could not be written: is its disk full?";
}

}  // namespace
}  // namespace minim

int main(int argc, char** argv) try {
  minim::open_standard_files();
  minim::ignore_file_size_signal();
  int status = minim::dispatch({argv + 1, argv + argc});
  if (!std::cout.flush() && status == 0) status = minim::report(minim::why_no_output(), 1);
  return status;
} catch (const minim::Error& error) {
  return minim::report(std::string("error: ") + error.what(), 2);
} catch (const std::filesystem::filesystem_error& error) {
  return minim::report(
      "error: " + minim::models::reason(error) + ": give another path, or change its permissions",
      2);
} catch (const std::bad_alloc&) {
  return minim::report(minim::kNoMemory, 2);
} catch (const std::length_error&) {
  return minim::report(minim::kNoMemory, 2);
} catch (const std::exception& error) {
  return minim::report(std::string("internal error: ") + error.what(), 1);
}
