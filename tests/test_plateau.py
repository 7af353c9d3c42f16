"""The plateau clinic on its committed rows: what is said of them is what they say."""

import json
import re

import numpy as np
import pytest
from conftest import ROOT
from scipy.stats import entropy
from scipy.stats import t as student_t

from embryo.ground.profiles import read_profile
from embryo.ground.rows import read_rows
from embryo.pretraining.training.signs import LEAVES
from embryo.results.plateau.appendix import compared, every_size, look_at_plateau, signs
from embryo.results.plateau.movements import alarms, forecast, that_rested
from embryo.results.plateau.sentences import said_first, said_forecast, said_limits, said_old


@pytest.fixture(scope="module")
def rows():
    return read_rows(ROOT / "papermill_runs" / "plateau" / "rows.csv")


@pytest.fixture(scope="module")
def warned(rows):
    return that_rested(alarms(rows))


def test_a_run_forecasts_what_the_rows_say(warned):
    "The constants in the loop are the forecast over the committed runs, rounded; the prose beside them counts alike."
    found = forecast(warned)
    assert tuple(round(x, 1) for x in found) == LEAVES
    room = ROOT / "nbs" / "3_pretraining" / "04_training" / "00_signs.ipynb"
    text = "\n".join("".join(c["source"]) for c in json.loads(room.read_text())["cells"])
    turned = warned[warned["rang"].notna()]
    assert f"{turned['left'].isna().sum()} of {len(turned)} did not within their schedule" in text
    times, low, high = (f"{x:.2f}" for x in found)
    assert f"({warned['times'].notna().sum()} runs: {times}, {low} to {high})" in text
    assert f"about {LEAVES[0]} times the tokens" in text
    assert warned.loc[warned["left"].notna(), "rang"].notna().all()  # every run that left had turned before


PROFILES = ("plateau", "plateau-8k")


@pytest.fixture(scope="module")
def clinics(rows):
    others = {name: read_rows(ROOT / "papermill_runs" / name / "rows.csv") for name in PROFILES[1:]}
    return {name: look_at_plateau(r, read_profile(name)) for name, r in {"plateau": rows, **others}.items()}


def test_no_sentence_of_the_appendix_is_written_for_one_profile():
    "Prose between the figures names no setting, number of tokens or winner: what is said of rows is printed from them."
    cells = json.loads((ROOT / "nbs" / "appendix" / "x_plateau.ipynb").read_text())["cells"]
    first = next(i for i, c in enumerate(cells) if "parameters" in c["metadata"].get("tags", []))
    prose = " ".join("".join(c["source"]) for c in cells[first:] if c["cell_type"] == "markdown")
    for word in ("5e-4", "half the rate", "batches of 64", "are earliest", "Muon", "4x256", "4 x 256"):
        assert word not in prose, word


def test_what_moves_first_is_named_only_where_an_interval_says_so(clinics):
    "Three runs at vocabulary 8,000 cannot tell what 27 at 2,000 can."
    pull = "gradient of queries and keys over the rest"
    told = {name: said_first(clinic).partition(" Behind it: ")[0] for name, clinic in clinics.items()}
    assert told["plateau"] == f"Before the loss: {pull}."
    assert told["plateau-8k"] == "Before the loss: none."
    assert pull in said_first(clinics["plateau-8k"]).partition("Cannot be told")[2]


def test_a_profile_that_chose_nothing_says_so(clinics):
    "Figure 1 and table 1 are left out, and the old settings are those that ran there."
    assert [clinics[name].tried for name in PROFILES] == [True, False]
    assert said_limits(clinics["plateau-8k"]) == "Nothing was chosen in this profile: its settings come from another."
    assert "lr5" in said_old(clinics["plateau"]) and "lr5" not in said_old(clinics["plateau-8k"])
    cells = json.loads((ROOT / "nbs" / "appendix" / "x_plateau.ipynb").read_text())["cells"]
    for name in ("x_plateau_fig1", "x_plateau_table1"):
        shown = next("".join(c["source"]) for c in cells if f'show("{name}")' in "".join(c["source"]))
        assert shown.startswith("if clinic.tried:")


def test_a_forecast_is_held_against_runs_that_it_was_not_fitted_on(clinics):
    "The reviewers' count, by a band that is worked out anew here."
    found = clinics["plateau"].warned
    logs = np.log(found.loc[found["chose"], "times"].dropna())
    half = student_t.ppf(0.975, len(logs) - 1) * logs.std() * (1 + 1 / len(logs)) ** 0.5
    others = np.log(found.loc[~found["chose"], "times"].dropna())
    inside = int((abs(others - logs.mean()) <= half).sum())
    assert (inside, len(others)) == (9, 10)
    assert f"of the {len(others)} runs of other seeds that left, {inside} did within that" in said_forecast(
        clinics["plateau"]
    )
    stayed = found[found["left"].isna()]
    assert f"Of {len(stayed)} runs that rested and had not left at the end, {stayed['rang'].notna().sum()} had" in (
        said_forecast(clinics["plateau"])
    )


def test_what_was_chosen_where_it_is_shown_is_told(clinics):
    "The rate at 4x256: in the caption of the table that shows it and in the limits; nowhere else."
    told = "The rate of neighbours m30 at 4x256 was chosen on the seeds that it is shown on (0 and 1)"
    for name, clinic in clinics.items():
        table, _ = every_size(clinic.rows, clinic)
        assert (told in table.attrs["caption"]) == (told in said_limits(clinic)) == (name == "plateau")
    assert "Muon without help for attention was tried in 4 settings, at 1 rate" in said_limits(clinics["plateau"])


def test_every_old_setting_is_a_baseline(clinics):
    "Table 2 has the intervals against half the rate and against batches of 64, as the front page quotes them."
    table, view = compared(clinics["plateau"].rows, clinics["plateau"])
    assert list(view["baseline"].unique()) == ["lr5 (old)", "b64 (old)"]
    recipe = view[view["setting"] == "neighbours m30 lr2 (the recipe)"].set_index("baseline")
    assert recipe.loc["b64 (old)", "tokens"] == "0.17 [0.15, 0.20]"
    assert recipe.loc["lr5 (old)", "tokens"] == "0.17 [0.14, 0.21]"


def test_settings_whose_signs_are_drawn_are_settings(clinics):
    "Chains of two budgets are one setting, and the order of rows does not decide which are drawn."
    clinic = clinics["plateau"]
    drawn = list(signs(clinic.rows, clinic)["name"].unique())
    assert drawn[:2] == ["b64 (old)", "lr5 (old)"] and len(drawn) == 4
    turned = look_at_plateau(clinic.rows[::-1].reset_index(drop=True), read_profile("plateau"))
    assert list(signs(turned.rows, turned)["name"].unique()) == drawn


@pytest.mark.parametrize("name", ["plateau", "plateau-8k", "plateau-families", "electra"])
def test_every_variant_of_the_clinic_is_run(name):
    "A variant that no result names would look as if it had been tried."
    profile = read_profile(name)
    asked = {
        v for result in profile["results"].values() for l1 in result.get("l1", []) for v in re.findall(r"[\w-]+", l1)
    }
    assert not set(profile["variants"]) - asked


def test_a_discriminator_learns_if_it_reads_first():
    "In the committed tries who reads first, not at twice the rate, is surely below the entropy of the share replaced."
    rows = read_rows(ROOT / "papermill_runs/electra/rows.csv")
    last = rows[(rows["step"] == rows["step"].max()) & (rows["split"] == "heldout")]
    loss = last.query("group == 'discriminator' and metric == 'loss'").set_index(["l1", "seed"])
    share = last.query("group == 'rtd' and metric == 'majority'").set_index(["l1", "seed"])["value"]
    known = share.map(lambda p: entropy([p, 1 - p]))
    learned = loss["value"] + 2 * loss["stderr"] < known
    reads = np.array(["~first" in l1 and "~lr4" not in l1 for l1, _ in loss.index])
    assert (learned == reads).all() and reads.sum() >= 1 and (~reads).sum() >= 2
