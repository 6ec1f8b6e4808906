// Files of the product include, themselves or by what they include, the headers that declare what
// they name. Compiled together, as the release and sanitizer builds do it, a file sees what those
// before it have included; alone it would not compile. Types and constants that stand at the
// beginning of a line of one header or more are looked for, and some of the standard library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/tidy/source_tree.h"

namespace unisono::test {
namespace {

using Names = std::set<std::string, std::less<>>;

// Of names from headers that others are unlikely to include.
const std::map<std::string_view, std::string_view> kStandard{
    {"accumulate", "numeric"},
    {"all_of", "algorithm"},
    {"any_of", "algorithm"},
    {"array", "array"},
    {"atomic", "atomic"},
    {"bit_cast", "bit"},
    {"condition_variable", "condition_variable"},
    {"count_if", "algorithm"},
    {"deque", "deque"},
    {"find_if", "algorithm"},
    {"from_chars", "charconv"},
    {"function", "functional"},
    {"ifstream", "fstream"},
    {"int64_t", "cstdint"},
    {"iota", "numeric"},
    {"lock_guard", "mutex"},
    {"make_shared", "memory"},
    {"make_unique", "memory"},
    {"map", "map"},
    {"max", "algorithm"},
    {"memcpy", "cstring"},
    {"min", "algorithm"},
    {"mutex", "mutex"},
    {"numeric_limits", "limits"},
    {"optional", "optional"},
    {"ostringstream", "sstream"},
    {"pair", "utility"},
    {"popcount", "bit"},
    {"set", "set"},
    {"shared_ptr", "memory"},
    {"sort", "algorithm"},
    {"span", "span"},
    {"string", "string"},
    {"string_view", "string_view"},
    {"thread", "thread"},
    {"tuple", "tuple"},
    {"uint16_t", "cstdint"},
    {"uint32_t", "cstdint"},
    {"uint64_t", "cstdint"},
    {"uint8_t", "cstdint"},
    {"unique_lock", "mutex"},
    {"unique_ptr", "memory"},
    {"unordered_map", "unordered_map"},
    {"variant", "variant"},
    {"vector", "vector"},
};

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Lines without comments, what stands between quotes, directives, and macros of several lines,
// which mean something where they are used.
std::vector<std::string> code_of_all(const SourceFile& file) {
  std::vector<std::string> all;
  std::string end;  // of what is passed over, where it goes on past a line
  for (const std::string& line : file.lines) {
    std::string code;
    const bool is_passed = end.empty() && (line.starts_with('#') || line.ends_with('\\'));
    for (std::size_t i = 0; i < line.size() && !is_passed; ++i) {
      const auto begins = [&](std::string_view text) {
        return line.compare(i, text.size(), text) == 0;
      };
      if (!end.empty()) {
        if (begins("\\") && end == "\"") {
          ++i;
        } else if (begins(end)) {
          i += end.size() - 1;
          end.clear();
        }
      } else if (begins("//")) {
        break;
      } else if (begins("/*")) {
        end = "*/";
      } else if (begins("R\"")) {
        const std::size_t open = line.find('(', i);
        end = ")" + line.substr(i + 2, open - i - 2) + "\"";
        i = open;
      } else if (begins("'\"'")) {
        i += 2;
      } else if (begins("\"")) {
        end = "\"";
      } else {
        code += line[i];
      }
    }
    all.push_back(code);
  }
  return all;
}

bool is_type(std::string_view name) {
  const bool is_macro = name.find_first_of("abcdefghijklmnopqrstuvwxyz") == std::string_view::npos;
  return std::isupper(static_cast<unsigned char>(name[0])) != 0 && (!is_macro || name.size() < 3);
}

struct Name {
  std::string text;
  bool is_standard = false;  ///< behind std::
  bool is_inner = false;     ///< behind a type's ::
  char next = 0;             ///< what follows
};

bool is_behind_type(const std::vector<Name>& before, const std::string& code, std::size_t begin) {
  return !before.empty() && begin >= 2 && code.compare(begin - 2, 2, "::") == 0 &&
         is_of_name(code[begin - 3]) && is_type(before.back().text);
}

// Names in `code`, but members behind a dot or an arrow.
std::vector<Name> names_in(const std::string& code) {
  std::vector<Name> names;
  for (std::size_t i = 0; i < code.size();) {
    if (!is_of_name(code[i])) {
      ++i;
      continue;
    }
    const std::size_t begin = i;
    while (i < code.size() && is_of_name(code[i])) ++i;
    const bool is_member = begin > 0 && (code[begin - 1] == '.' || code[begin - 1] == '>');
    if (is_member) continue;
    const std::size_t next = code.find_first_not_of(' ', i);
    names.push_back({.text = code.substr(begin, i - begin),
                     .is_standard = begin >= 5 && code.compare(begin - 5, 5, "std::") == 0,
                     .is_inner = is_behind_type(names, code, begin),
                     .next = next == std::string::npos ? '\0' : code[next]});
  }
  return names;
}

bool is_constant(std::string_view name) {
  return name.size() > 1 && name[0] == 'k' && std::isupper(static_cast<unsigned char>(name[1]));
}

// What a line of code declares: types, parameters of templates, constants.
std::vector<std::string> declared_by(const std::vector<Name>& names) {
  std::vector<std::string> declared;
  bool is_const = false, awaits_type = false;
  for (const Name& name : names) {
    const std::string& text = name.text;
    is_const |= text == "const" || text == "constexpr" || text == "enum";
    const bool is_first = &name == &names.front();  // of an enumeration's line
    const bool is_declared =
        awaits_type ? is_type(text)
                    : is_constant(text) && (is_first || (is_const && name.next != ';'));
    if (is_declared) declared.push_back(text);
    awaits_type &= !is_declared;  // past attributes: UNISONO_API, nodiscard, alignas(64)
    awaits_type |= text == "class" || text == "struct" || text == "union" || text == "enum" ||
                   text == "using" || text == "typename";
  }
  return declared;
}

struct Facts {
  Names declared;   ///< at the beginning of a line
  Names elsewhere;  ///< inside of something, or only announced: `class Engine;`
  Names used;
  Names used_of_std;                  ///< behind std::
  std::vector<std::string> included;  ///< of the project
  Names included_of_std;
};

std::string path_of(const Include& include, const std::map<std::string, Facts>& all) {
  for (const char* folder : {"include/", "src/", ""}) {
    const std::string path = folder + include.name;
    if (all.contains(path)) return path;
  }
  return {};
}

Facts facts_of(const SourceFile& file) {
  Facts facts;
  for (const std::string& code : code_of_all(file)) {
    const std::vector<Name> names = names_in(code);
    for (const std::string& name : declared_by(names)) {
      const bool is_announced = code.ends_with(';') && code.find('=') == std::string::npos;
      const bool is_first = code[0] != ' ' && !code.starts_with("template") && !is_announced;
      (is_first ? facts.declared : facts.elsewhere).insert(name);
    }
    for (const Name& name : names) {
      if (!name.is_inner) (name.is_standard ? facts.used_of_std : facts.used).insert(name.text);
    }
  }
  return facts;
}

// What CMake compiles together; of device code and vector code each source includes parts of
// others.
bool is_product(const SourceFile& file) {
  for (const char* folder :
       {"tests", "bench", "bindings/python", "bindings/torch", "src/compute", "src/cuda/kernels"}) {
    if (file.is_in(folder)) return false;
  }
  return file.path.ends_with(".h") || file.path.ends_with(".cc");
}

class NeededIncludes : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (const SourceFile& file : source_files()) {
      if (is_product(file)) all_[file.path] = facts_of(file);
    }
    for (const SourceFile& file : source_files()) {
      if (is_product(file)) resolve(file);
    }
    for (const auto& [path, facts] : all_) {
      elsewhere_.insert(facts.elsewhere.begin(), facts.elsewhere.end());
      if (path.ends_with(".cc")) elsewhere_.insert(facts.declared.begin(), facts.declared.end());
      for (const std::string& name : facts.declared) headers_[name].insert(path);
    }
  }

  // `path` and all that it includes.
  static Names reached_from(const std::string& path) {
    Names reached{path};
    std::vector<std::string> left{path};
    while (!left.empty()) {
      const Facts& facts = all_[left.back()];
      left.pop_back();
      for (const std::string& each : facts.included) {
        if (reached.insert(each).second) left.push_back(each);
      }
    }
    return reached;
  }

  // The names of `facts` whose headers are not among these.
  static std::vector<std::string> missing(const Facts& facts, const Names& reached) {
    std::vector<std::string> names;
    for (const std::string& name : facts.used) {
      const auto headers = headers_.find(name);
      // What has the same name inside of another class may be meant.
      if (headers == headers_.end() || elsewhere_.contains(name)) continue;
      bool found = false;
      for (const std::string& header : headers->second) found |= reached.contains(header);
      if (!found) names.push_back(name + " of " + *headers->second.begin());
    }
    for (const std::string& name : facts.used_of_std) {
      const auto header = kStandard.find(name);
      if (header == kStandard.end()) continue;
      bool found = false;
      for (const std::string& each : reached) {
        found |= all_[each].included_of_std.contains(header->second);
      }
      if (!found) names.push_back("std::" + name);
    }
    return names;
  }

  static std::map<std::string, Facts> all_;  // by path

 private:
  static void resolve(const SourceFile& file) {
    Facts& facts = all_[file.path];
    for (const Include& include : includes_of(file)) {
      const std::string path = path_of(include, all_);
      if (!path.empty()) {
        facts.included.push_back(path);
      } else if (!include.quoted) {
        facts.included_of_std.insert(include.name);
      }
    }
  }

  static std::map<std::string, Names> headers_;  // that declare a name
  static Names elsewhere_;
};
std::map<std::string, Facts> NeededIncludes::all_;
std::map<std::string, Names> NeededIncludes::headers_;
Names NeededIncludes::elsewhere_;

TEST_F(NeededIncludes, ReachWhatAFileNames) {
  for (const auto& [path, facts] : all_) {
    for (const std::string& name : missing(facts, reached_from(path))) {
      ADD_FAILURE() << path << " names " << name << " and does not include it";
    }
  }
}

TEST_F(NeededIncludes, AreMissedWhereTheyAreNot) {
  const SourceFile file{.path = "src/plan/alone.cc",
                        .lines = {"std::vector<int> of(const StandbyAddress& one);  // std::map"}};
  EXPECT_THAT(
      missing(facts_of(file), {}),
      testing::ElementsAre("StandbyAddress of src/rendezvous/failure/standby.h", "std::vector"));
}

}  // namespace
}  // namespace unisono::test
