// vcattn: VC-Attention on the command line.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>
#include <vector>

#include "cli/commands/bench.h"
#include "cli/commands/compare.h"
#include "cli/commands/info.h"
#include "cli/commands/run.h"
#include "cli/failure.h"
#include "vcattn/error.h"
#include "vcattn/plan.h"

namespace vcattn::cli {
namespace {

constexpr const char* kExitCodes =
    "Exit codes:\n"
    "  0  done\n"
    "  1  run-time failure: memory, device, an output that cannot be written or is not finite\n"
    "  2  usage: unknown command, option, recipe or field, or a bad value\n"
    "  3  bad input file: missing, lying, unfit for a call, or NaN inside\n"
    "  4  not supported by this build, device or recipe\n"
    "  5  worse than --max-rel-l2\n";

/// The option names of a command, for a user who got one wrong.
std::string options_text(const CLI::App& parser) {
  std::string text;
  for (const CLI::Option* option : parser.get_options()) {
    text += (text.empty() ? "" : ", ") + option->get_name();
  }
  return text;
}

const CLI::App& chosen(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app : *commands.front();
}

std::string commands_text(const CLI::App& app) {
  std::string text;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    text += (text.empty() ? "" : ", ") + command->get_name();
  }
  return text;
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& parser = chosen(app);
  std::string message = error.what();
  for (char& c : message) c = c == '\n' ? ' ' : c;
  if (&parser == &app) {
    message = fmt::format("a command is required (supported: {})", commands_text(app));
  } else if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    message += fmt::format(" (supported: {})", options_text(parser));
  }
  say(fmt::format("error: {}; see {} --help", message,
                  &parser == &app ? "vcattn" : "vcattn " + parser.get_name()));
  return static_cast<int>(ExitCode::kUsage);
}

ExitCode execute(const Command& command) {
  try {
    const ExitCode code = command.execute();
    if (std::fflush(stdout) != 0) throw Failure(ExitCode::kRuntime, "stdout cannot be written");
    return code;
  } catch (const Failure& failure) {
    say(fmt::format("error: {}", failure.what()));
    return failure.code();
  } catch (const std::bad_alloc&) {
    say("error: out of memory");
  } catch (const std::exception& error) {
    say(fmt::format("error: {}", error.what()));
  }
  return ExitCode::kRuntime;
}

int main(int argc, char** argv) {
  CLI::App app("VC-Attention: low-bit attention for video diffusion transformers", "vcattn");
  app.set_version_flag("--version", fmt::format("vcattn {}", version()));
  app.footer(kExitCodes);
  app.require_subcommand(1);
  const std::vector<std::string> command_line(argv, argv + argc);
  const std::vector<Command> commands{declare_run(app), declare_compare(app, command_line),
                                      declare_bench(app, command_line), declare_info(app)};
  for (const Command& command : commands) command.parser->footer(kExitCodes);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help and --version
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  }
  for (const Command& command : commands) {
    if (command.parser->parsed()) return static_cast<int>(execute(command));
  }
  return static_cast<int>(ExitCode::kUsage);
}

}  // namespace
}  // namespace vcattn::cli

int main(int argc, char** argv) { return vcattn::cli::main(argc, argv); }
