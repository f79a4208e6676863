"""Read the exports of a run with their readers, and compare the figures with lumos's report.

readers.py FOLDER: the folder that readers.sh filled. Each reader computes value, standard error and number of items of
every configuration, metric and scoring from the rows that it read. They have to equal the report within 1e-12.
"""

import json
import math
import sys
from collections import defaultdict
from importlib import metadata
from pathlib import Path

LIMIT = 1e-12
failed = 0


def version(*packages):
    return ", ".join(f"{name} {metadata.version(name)}" for name in packages)


def check(name, detail, right):
    global failed
    failed += not right
    print(f"{'ok    ' if right else 'FAILED'} {name}: {detail}")


def figure(shares):
    """Value, standard error and number of items of (numerator, denominator) pairs: a ratio, clustered by item."""
    count, weight = len(shares), math.fsum(denominator for _, denominator in shares)
    value = math.fsum(numerator for numerator, _ in shares) / weight
    squares = math.fsum((numerator - value * denominator) ** 2 for numerator, denominator in shares)
    error = math.sqrt(squares * count / (count - 1)) / weight if count > 1 else None
    return value, error, count


class Report:
    """Figures of lumos's report by (key, metric, scoring)."""

    def __init__(self, path):
        document = json.loads(path.read_text())
        self.document = document
        self.figures, self.main, self.bounded = {}, {}, set()
        self.keys = {}
        self.recorded = {}
        for key, cell in document["lumos"]["configurations"].items():
            self.keys[cell["identity"]] = key
            ledger = cell["ledger"]
            self.recorded[key] = ledger["planned"] - ledger["outstanding"]
            for index, scores in enumerate(cell["scores"]):
                for metric in scores["metrics"]:
                    estimate = metric["estimate"]
                    if estimate is None:
                        continue
                    name = (key, metric["metric"], scores["scoring"])
                    self.figures[name] = (estimate["value"], estimate["standard_error"], estimate["items"])
                    if index == 0:
                        self.main[key, metric["metric"]] = scores["scoring"]
                    if metric["kind"] != "unbounded_mean":
                        self.bounded.add(name)

    def compare(self, reader, found, names=None):
        """Compare figures; the standard error is skipped where the reader has none (False)."""
        names = set(self.figures if names is None else names)
        largest, wrong = 0.0, sorted(names ^ set(found))[:3]
        for name in names & set(found):
            for ours, theirs in zip(self.figures[name], found[name]):
                if theirs is False:
                    continue
                if (ours is None) != (theirs is None):
                    wrong.append((name, ours, theirs))
                elif ours is not None:
                    largest = max(largest, abs(ours - theirs))
                    if abs(ours - theirs) > LIMIT:
                        wrong.append((name, ours, theirs))
        detail = f"{len(found)} figures, largest difference {largest:.1e}"
        check(reader, detail + (f"; wrong: {wrong[:3]}" if wrong else ""), bool(found) and not wrong)


def inspect_logs(report, folder):
    from inspect_ai.analysis import evals_df, events_df, messages_df, samples_df
    from inspect_ai.log import list_eval_logs, read_eval_log

    versions, found, headers, counted = version("inspect_ai"), {}, {}, 0
    for info in list_eval_logs(str(folder)):
        log = read_eval_log(info)
        key = log.eval.task
        names = {score.name: score.metrics for score in log.results.scores}
        for (cell, metric, scoring), _ in report.figures.items():
            if cell != key:
                continue
            name = metric if report.main[key, metric] == scoring else f"{metric}_{scoring}"
            metrics = names[name]
            error = metrics["stderr"].value if "stderr" in metrics else None
            samples = [sample.scores[name] for sample in log.samples if sample.scores and name in sample.scores]
            headers[cell, metric, scoring] = (metrics["accuracy"].value, error, len(samples))
            shares = [(score.metadata["numerator"], score.metadata["denominator"]) for score in samples]
            found[cell, metric, scoring] = figure(shares)
        counted += len(log.samples)
    report.compare(f"inspect headers ({versions})", headers)
    report.compare("inspect samples", found)
    planned = sum(report.recorded.values())
    check("inspect samples of all logs", f"{counted} of {planned} recorded", counted == planned)
    for name, frame in [
        ("evals_df", evals_df), ("samples_df", samples_df), ("messages_df", messages_df), ("events_df", events_df),
    ]:
        rows = len(frame(str(folder)))
        expected = {"evals_df": len(report.recorded), "samples_df": planned}.get(name, rows)
        check(f"inspect {name}", f"{rows} rows", rows == expected and rows > 0)


def lm_eval_tables(report, folder):
    from lm_eval.utils import make_table

    [results] = folder.glob("*/results_*.json")
    document = json.loads(results.read_text())
    table = make_table(document)
    missing = [cell["alias"] for cell in document["results"].values() if cell["alias"] not in table]
    check(f"lm_eval make_table ({version('lm_eval')})", f"{len(table.splitlines())} lines", not missing)
    found = {}
    for key, cell in document["results"].items():
        for name, value in cell.items():
            metric, _, scoring = name.partition(",")
            if scoring and scoring != "none" and not metric.endswith("_stderr"):
                error = cell[f"{metric}_stderr,{scoring}"]
                effective = report.figures[key, metric, scoring][2]
                found[key, metric, scoring] = (value, None if error == "N/A" else error, effective)
        check(f"lm_eval n-samples of {key}", document["n-samples"][key]["effective"],
              document["n-samples"][key]["effective"] == cell["sample_len"])
    report.compare("lm_eval results", found)


def sample_rows(folder):
    return sorted(str(path) for path in folder.glob("*/samples_*.jsonl"))


def of_samples(report, reader, rows):
    """Figures of rows with lm-eval's fields: values and weights of every scoring are in the text `scores`."""
    shares, mains = defaultdict(list), defaultdict(list)
    for row in rows:
        for scoring, score in json.loads(row["scores"]).items():
            for metric, share in (score or {}).items():
                shares[row["task"], metric, scoring].append((share["numerator"], share["denominator"]))
                if report.main.get((row["task"], metric)) == scoring:
                    value = row.get(metric)
                    mains[row["task"], metric] += [value] if value is not None and not math.isnan(value) else []
    found = {name: figure(values) for name, values in shares.items() if sum(weight for _, weight in values)}
    report.compare(reader, {name: value for name, value in found.items() if name in report.figures})
    plain = [(*name, report.main[name]) for name in mains]
    plain = [name for name in plain if name in shares and all(weight == 1 for _, weight in shares[name])]
    means = {name: (math.fsum(mains[name[:2]]) / len(mains[name[:2]]), False, len(mains[name[:2]])) for name in plain}
    if means:
        report.compare(f"{reader}, means of the metric's field", means, plain)


def samples_tables(report, folder):
    import duckdb
    import pandas
    import polars
    from datasets import load_dataset

    files = sample_rows(folder)
    frame = pandas.concat([pandas.read_json(file, lines=True) for file in files])
    of_samples(report, f"pandas samples ({version('pandas')})", frame.to_dict("records"))
    rows = [row for file in files for row in polars.read_ndjson(file, infer_schema_length=None).to_dicts()]
    of_samples(report, f"polars samples ({version('polars')})", rows)
    rows = [row for file in files
            for row in duckdb.sql(f"select * from read_json('{file}', format='newline_delimited')").df().to_dict("records")]
    of_samples(report, f"duckdb samples ({version('duckdb')})", rows)
    rows = [row for file in files for row in load_dataset("json", data_files=file, split="train")]
    of_samples(report, f"datasets samples ({version('datasets')})", rows)


def of_units(report, reader, rows):
    """Figures of flat rows with a column of values and one of weights per metric and scoring."""
    shares = defaultdict(list)
    for row in rows:
        key = report.keys[row["configuration"]]
        for cell, metric, scoring in report.figures:
            if cell != key:
                continue
            name = f"{metric}_{scoring}"
            value, weight = row[name], row[f"{name}_weight"]
            if value is not None and value == value:
                shares[cell, metric, scoring].append((value * weight, weight))
    report.compare(reader, {name: figure(values) for name, values in shares.items()})
    check(f"{reader}, rows", len(rows), len(rows) == sum(report.recorded.values()))


def unit_tables(report, folder):
    import duckdb
    import pandas
    import polars
    import pyarrow.parquet
    from datasets import load_dataset

    file = str(folder / "csv" / "units.csv")
    of_units(report, "pandas csv", pandas.read_csv(file).to_dict("records"))
    of_units(report, "polars csv", polars.read_csv(file, infer_schema_length=None).to_dicts())
    of_units(report, "duckdb csv", duckdb.sql(f"select * from read_csv('{file}', sample_size=-1)").df().to_dict("records"))
    path = folder / "parquet" / "units.parquet"
    if not path.exists():
        print("skipped parquet: no file")
        return
    file = str(path)
    of_units(report, f"pyarrow parquet ({version('pyarrow')})", pyarrow.parquet.read_table(file).to_pylist())
    of_units(report, "pandas parquet", pandas.read_parquet(file).to_dict("records"))
    of_units(report, "polars parquet", polars.read_parquet(file).to_dicts())
    of_units(report, "duckdb parquet", duckdb.sql(f"select * from read_parquet('{file}')").df().to_dict("records"))
    of_units(report, "datasets parquet", list(load_dataset("parquet", data_files=file, split="train")))
    steps = duckdb.sql(f"select count(*) from (select unnest(steps) from read_parquet('{file}'))").fetchall()[0][0]
    check("duckdb unnest of steps", steps, steps == sum(map(len, polars.read_parquet(file)["steps"].to_list())))


def every_eval_ever(report, folder):
    stated, found = {}, {}
    for path in sorted((folder / "every-eval-ever" / "data").glob("*/*/*/*.json")):
        record = json.loads(path.read_text())
        key = report.keys[record["evaluation_results"][0]["generation_config"]["additional_details"]["configuration"]]
        shares = defaultdict(list)
        rows = [json.loads(line) for line in Path(folder / "every-eval-ever"
                / record["detailed_evaluation_results"]["file_path"]).read_text().splitlines()]
        for row in rows:
            share = (float(row["metadata"]["numerator"]), float(row["metadata"]["denominator"]))
            assert abs(share[0] / share[1] - row["evaluation"]["score"]) <= LIMIT
            shares[row["evaluation_result_id"]].append(share)
        for result in record["evaluation_results"]:
            metric, scoring = result["evaluation_result_id"].split(":")
            details = result["score_details"]
            uncertainty = details["uncertainty"]
            error = uncertainty.get("standard_error", {}).get("value")
            stated[key, metric, scoring] = (details["score"], error, uncertainty["num_samples"])
            found[key, metric, scoring] = figure(shares[result["evaluation_result_id"]])
    report.compare("every_eval_ever aggregates", stated, report.bounded)
    report.compare("every_eval_ever instances", found, report.bounded)
    validated = folder / "validated.json"
    if not validated.exists():
        return
    files = json.loads(validated.read_text())
    check(f"every_eval_ever validate ({version('every-eval-ever')})", f"{len(files)} files",
          bool(files) and all(file["valid"] for file in files))
    values = defaultdict(set)
    for path in (folder / "converted").rglob("*.json"):
        for result in json.loads(path.read_text())["evaluation_results"]:
            values[result["evaluation_name"]].add(result["score_details"]["score"])
    converted = {round(value, 15) for scores in values.values() for value in scores}
    main = {round(report.figures[(*name, scoring)][0], 15) for name, scoring in report.main.items()}
    check("every_eval_ever convert lm_eval", f"{len(converted)} values", bool(main) and main <= converted)


def main():
    folder = Path(sys.argv[1])
    report = Report(folder / "report.json")
    inspect_logs(report, folder / "inspect")
    lm_eval_tables(report, folder / "lm-eval")
    samples_tables(report, folder / "lm-eval")
    unit_tables(report, folder)
    every_eval_ever(report, folder)
    print(f"{failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
