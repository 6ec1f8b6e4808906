"""The table of run.sh's CSV: table.py CSV"""
import csv
import statistics
import sys
from collections import defaultdict

rows = defaultdict(list)
with open(sys.argv[1], newline="") as file:
    for library, ranks, way, milliseconds in csv.reader(file):
        rows[library, int(ranks), way].append(float(milliseconds))
median = {key: statistics.median(values) for key, values in rows.items()}

print("| library | 1 rank ms | 2 ranks apart ms | ddp ms | no overlap ms | all-reduce alone ms "
      "| communication in a step ms | of the step | speed-up | two cores' limit |")
print("|---|---|---|---|---|---|---|---|---|---|")
for library in ("unisono", "torch"):
    if (library, 1, "alone") not in median:
        continue
    one, apart = median[library, 1, "alone"], median[library, 2, "alone"]
    ddp, average = median[library, 2, "ddp"], median[library, 2, "average"]
    late = median.get((library, 2, "no_overlap"))
    print(f"| {library} | {one:.2f} | {apart:.2f} | {ddp:.2f} | "
          f"{'' if late is None else f'{late:.2f}'} | {average:.3f} | {ddp - apart:.3f} | "
          f"{(ddp - apart) / ddp:.1%} | {2 * one / ddp:.2f} | {2 * one / apart:.2f} |")
