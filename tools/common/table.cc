#include "tools/common/table.h"

#include <algorithm>
#include <utility>

namespace unisono::tools {

namespace {
constexpr const char* kGap = "  ";
}  // namespace

std::size_t display_width(const std::string& text) {
  // Every byte but the continuation bytes 10xxxxxx begins a code point.
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add_row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::vector<std::string> Table::titles() const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  return titles;
}

Table::Widths Table::declared_widths() const {
  Widths widths;
  for (const Column& column : columns_) {
    widths.push_back(std::max(column.width_min, display_width(column.title)));
  }
  return widths;
}

std::string Table::line(const std::vector<std::string>& cells, const Widths& widths) const {
  std::string out;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const std::string cell = i < cells.size() ? cells[i] : std::string();
    const std::size_t width = display_width(cell);
    const std::string padding(width < widths[i] ? widths[i] - width : 0, ' ');
    if (i > 0) out += kGap;
    out += columns_[i].align == Align::kRight ? padding + cell : cell + padding;
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out + "\n";
}

std::string Table::text() const {
  Widths widths = declared_widths();
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(row[i]));
    }
  }
  std::string out = line(titles(), widths);
  for (const auto& row : rows_) out += line(row, widths);
  return out;
}

std::string Table::header_line() const { return line(titles(), declared_widths()); }

std::string Table::row_line(const std::vector<std::string>& cells) const {
  return line(cells, declared_widths());
}

}  // namespace unisono::tools
