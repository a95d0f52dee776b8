"""Asks the datasketches package what the answers.tsv of a folder says of the images beside it."""

import math
import pathlib
import sys

import datasketches


def ask(image: bytes, kind: str, question: str) -> float:
    if kind == "hll":
        sketch = datasketches.hll_sketch.deserialize(image)
        bounds = {
            "value": sketch.get_estimate,
            "low": lambda: sketch.get_lower_bound(2),
            "high": lambda: sketch.get_upper_bound(2),
        }
        return bounds[question]()
    sketch = datasketches.kll_doubles_sketch.deserialize(image)
    if question == "count":
        return sketch.n
    if question == "error":
        return sketch.normalized_rank_error(False) if sketch.is_estimation_mode() else 0.0
    if question == "largest":
        return sketch.get_max_value()
    return sketch.get_rank(float(question), True)


folder = pathlib.Path(sys.argv[1])
asked = wrong = 0
for line in (folder / "answers.tsv").read_text().splitlines():
    name, question, ours = line.split("\t")
    theirs = ask((folder / name).read_bytes(), name.split("-")[0], question)
    asked += 1
    if not math.isclose(theirs, float(ours), rel_tol=1e-9, abs_tol=1e-9):
        wrong += 1
        print(f"{name}: {question} is {ours} here and {theirs} there")
images = sum(1 for path in folder.iterdir() if path.name != "answers.tsv")
print(f"{images} images, {asked} answers, {wrong} of them different")
sys.exit(wrong > 0 or asked == 0)
