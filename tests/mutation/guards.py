"""Finds the safety checks of a C++ source and makes each of them one that can be switched off.

Made for code in clang-format's layout; no parser. A check is
  - an operand of `||`, or the whole, of an `if` whose branch refuses: returns an error, marks the
    input bad, discards, throws; or that compares sizes and leaves. (`if` of a failed system call is
    none, nor of one of OpenSSL: what they say can hardly be arranged by a test.)
  - `UNISONO_TRY(check_...(...))` and what else is only called to be refused by;
  - `return good ? Status() : ...`;
  - `std::min` with a limit (kSomethingMax and the like).
Checks inside of expressions (`const bool whole = got == wanted;`) are found where the flag is used.
"""
import re
from dataclasses import dataclass

ERROR = re.compile(
    r"ErrorCode::|Status\(ErrorCode|\b(return|fail|bad|wrong|refuse|malformed|violation|protocol|"
    r"mismatch|unusable|invalid|failed|finish|hung_up|missing)\s*\(|return\s+\w*(fail|refus|mismatch|"
    r"violat|wrong|bad|outcome|failure)\w*|ok_\s*=\s*false|discard|throw\b|\.error\(\)|Failure\{")
NOTHING = re.compile(r"return\s*(false|std::nullopt|\{\}|nullptr|-1)?\s*;|continue;|break;")
COMPARES = re.compile(r"\s[<>]=?\s|\.(empty|size)\(")
SYSTEM = re.compile(r"\berrno\b|strerror|system_error|MAP_FAILED|\bEVP_|RAND_bytes|fstat\(|^error( != 0)?$")
LIMIT = re.compile(r"std::min(<[^>()]*>)?\(")
LIMIT_NAME = re.compile(r"\bk\w*(Max|Limit|Bytes|Count)\b|_max\b|\blimit\b")
TRY = re.compile(r"UNISONO_TRY\(\s*((?:\w+(?:\.|->|::))*(?:check|need|validate|too_long|verify)\w*)\(")
TERNARY = re.compile(r"return ([^;?]+?)\s*\?\s*Status\(\)\s*:")


# In front of a source: whether the check of a number is in its place. Lines count from behind it.
PRELUDE = """#ifndef UNISONO_CHECKS
#define UNISONO_CHECKS
#include <cstdlib>
namespace unisono_checks {
inline bool on(int check) {
  static const char* const text = std::getenv("REMOVED_CHECK");
  static const int removed = text == nullptr ? -1 : std::atoi(text);
  return check != removed;
}
}  // namespace unisono_checks
#endif
#line 1
"""


@dataclass(frozen=True)
class Guard:
    """One check: where it is, and what stands there instead. `{on}` says whether it is in place."""

    file: str
    function: str
    condition: str
    begin: int
    end: int
    switched: str
    line: int
    last_line: int


def mask(text):
    """`text` with what comments and literals hold blanked: braces and parentheses can be counted."""
    def blank(found):
        kept = found.group(0)
        if kept.startswith('"') or kept.startswith("'"):
            return kept[0] + " " * (len(kept) - 2) + kept[-1]
        return re.sub(r"[^\n]", " ", kept)

    literal = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])*\''
    return re.sub(literal, blank, text, flags=re.S)


def closing(masked, begin):
    """The place of what closes the bracket at `begin`."""
    depth = 0
    for at in range(begin, len(masked)):
        if masked[at] in "([{":
            depth += 1
        elif masked[at] in ")]}":
            depth -= 1
            if depth == 0:
                return at
    return len(masked) - 1


def branch(masked, begin):
    """The end of the statement or block that starts at or behind `begin`."""
    while masked[begin].isspace():
        begin += 1
    if masked[begin] == "{":
        return closing(masked, begin) + 1
    while masked[begin] != ";":
        begin = closing(masked, begin) + 1 if masked[begin] in "([{" else begin + 1
    return begin + 1


def split_at(masked, begin, end, separator):
    """[begin, end) cut at `separator` outside of brackets, as pairs."""
    parts, last, at = [], begin, begin
    while at < end:
        if masked[at] in "([{":
            at = closing(masked, at) + 1
        elif masked.startswith(separator, at):
            parts.append((last, at))
            at += len(separator)
            last = at
        else:
            at += 1
    return parts + [(last, end)]


def trim(text, begin, end):
    while begin < end and text[begin].isspace():
        begin += 1
    while end > begin and text[end - 1].isspace():
        end -= 1
    return begin, end


def one_line(text):
    return re.sub(r"\s+", " ", text).strip()


class Functions:
    """Which function a place is in, by the braces around it."""

    HEAD = re.compile(r"(~?[A-Za-z_][\w:~]*)\s*\(")
    NO_FUNCTION = re.compile(
        r"^\s*(if|for|while|switch|else|do|catch|return|namespace|class|struct|enum|union)\b|=\s*$"
        r"|\]\s*(\(|$)")

    def __init__(self, masked):
        self._spans = []
        for found in re.finditer(r"\{", masked):
            start = max(masked.rfind(mark, 0, found.start()) for mark in ";{}") + 1
            head = re.sub(r"^\s*(public|private|protected)\s*:", "", masked[start:found.start()])
            name = self.HEAD.search(re.sub(r"template\s*<[^>]*>", "", head))
            whole = head.count("(") == head.count(")")  # not cut at a ';' of a `for`
            if name and whole and not self.NO_FUNCTION.search(head.strip()):
                self._spans.append((found.start(), closing(masked, found.start()), name.group(1)))

    def at(self, place):
        around = [span for span in self._spans if span[0] < place < span[1]]
        return max(around)[2] if around else "-"


def refuses(condition, taken):
    if SYSTEM.search(condition) or SYSTEM.search(taken):
        return False
    if len(taken.splitlines()) > 12:
        return False
    if ERROR.search(re.sub(r"\breturn\s*\(", "", taken)):
        return True
    return bool(NOTHING.search(taken)) and bool(COMPARES.search(condition))


def guards_of(file, text):
    masked = mask(text)
    functions = Functions(masked)
    found = []

    def add(begin, end, condition, switched):
        found.append(Guard(file, functions.at(begin), one_line(condition), begin, end, switched,
                           text.count("\n", 0, begin) + 1, text.count("\n", 0, end) + 1))

    for match in re.finditer(r"\bif \(", masked):
        opening = match.end() - 1
        end = closing(masked, opening)
        begin = split_at(masked, opening + 1, end, ";")[-1][0]  # behind an init statement
        whole = text[begin:end]
        if not refuses(whole, text[end + 1:branch(masked, end + 1)]):
            continue
        if re.match(r"\s*(const\s+)?(auto|[A-Z]\w*)[&*\s]+\w+ = ", whole):
            continue  # a declaration: what it declares is used in the branch
        for part in split_at(masked, begin, end, "||"):
            part = trim(text, *part)
            add(*part, text[part[0]:part[1]], "(({text}) && {on})")
    for match in TRY.finditer(masked):
        end = closing(masked, masked.index("(", match.start()))
        call = text[match.start() + len("UNISONO_TRY("):end]
        add(match.start(), end + 1, call, "do {{ if ({on}) {text}; }} while (false)")
    for match in TERNARY.finditer(masked):
        condition = text[match.start(1):match.end(1)]
        add(match.start(1), match.end(1), condition, "(!{on} || ({text}))")
    for match in LIMIT.finditer(masked):
        end = closing(masked, match.end() - 1)
        parts = [trim(text, *part) for part in split_at(masked, match.end(), end, ",")]
        texts = [text[a:b] for a, b in parts]
        limits = [i for i, part in enumerate(texts) if LIMIT_NAME.search(part)]
        if len(parts) != 2 or len(limits) != 1:
            continue
        other = texts[1 - limits[0]].replace("{", "{{").replace("}", "}}")
        add(match.start(), end + 1, text[match.start():end + 1], "({on} ? {text} : " + other + ")")
    # One within another is left to the other.
    return sorted((guard for guard in found
                   if not any(other is not guard and other.begin <= guard.begin
                              and guard.end <= other.end for other in found)),
                  key=lambda guard: guard.begin)


def with_switches(text, numbered):
    """`text` in which each of the checks `numbered`, {number: guard}, can be switched off."""
    for number, guard in sorted(numbered.items(), key=lambda pair: -pair[1].begin):
        switched = guard.switched.format(on=f"unisono_checks::on({number})",
                                         text=text[guard.begin:guard.end])
        text = text[:guard.begin] + switched + text[guard.end:]
    return PRELUDE + text
