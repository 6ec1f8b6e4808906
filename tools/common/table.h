// Text tables for people: aligned columns, either all at once or line by line while rows arrive.
// Plain values; one thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace unisono::tools {

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kRight;
  /// Columns of a table printed line by line need their width in advance; text() widens as needed.
  std::size_t width_min = 0;
};

/// Usage: Table table({{"bytes"}, {"note", Align::kLeft}}); table.add_row({"64K", "ok"});
///        std::cout << table.text();
/// Cells may hold UTF-8: one code point counts as one column wide.
class Table {
 public:
  explicit Table(std::vector<Column> columns);

  /// Missing cells are empty; cells beyond the last column are dropped.
  void add_row(std::vector<std::string> cells);
  std::size_t row_count() const { return rows_.size(); }

  /// Header and all rows, each line ending in a newline, without trailing blanks.
  std::string text() const;

  /// For tables printed while rows arrive: the header and one row at the declared widths.
  std::string header_line() const;
  std::string row_line(const std::vector<std::string>& cells) const;

 private:
  using Widths = std::vector<std::size_t>;
  Widths declared_widths() const;
  std::string line(const std::vector<std::string>& cells, const Widths& widths) const;
  std::vector<std::string> titles() const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Code points of a UTF-8 text: its width on a terminal for the characters used here.
std::size_t display_width(const std::string& text);

}  // namespace unisono::tools
