// What all commands say of a command line that cannot be taken. One thread.
#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace unisono::tools {

/// CLI11's words, or the tools' own where these say it better: of text that is no number, outside a
/// range or missing.
std::string words_of(const CLI::ParseError& error);

/// A check beside CLI::Range of doubles, which lets "nan" through.
std::string refuse_nan(const std::string& text);

/// For the end of a command whose arguments were not parsed: prints the help that was asked for, or
/// on standard error what is wrong, behind the command's name. Returns the exit status, 0 or 2.
int finish_parsing(CLI::App& app, const CLI::ParseError& error);

}  // namespace unisono::tools
