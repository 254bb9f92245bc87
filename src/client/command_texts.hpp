// Texts that are made of a command line itself, so that they cannot say anything else than --help: its manual page, and its
// completion in shells.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fencegate::client {

// A section of a manual page behind the commands. Paragraphs are separated by an empty line; where a paragraph's first line
// ends with a tab, that line is its tag.
struct manual_section {
  std::string_view title;
  std::string text;
};

// In the language of man(7).
[[nodiscard]] std::string manual_of(const CLI::App& app, std::span<const manual_section> more);

enum class shell : std::uint8_t { bash, zsh };
[[nodiscard]] std::string completion_of(const CLI::App& app, shell whose);

// The exit statuses of `hold`, for a manual page.
[[nodiscard]] manual_section statuses_of_hold();

// The words `manual` and `completion SHELL`.
struct text_words {
  CLI::App *manual = nullptr, *completion = nullptr;
  shell whose = shell::bash;
};
void add_text_words(CLI::App& app, text_words& to);
// What one of them prints; nullopt: none of them was given.
[[nodiscard]] std::optional<std::string> text_asked(const CLI::App& app, const text_words& given,
                                                    std::span<const manual_section> more);

}  // namespace fencegate::client
