"""Certificates: what is written can be checked by anybody, and nothing else passes for it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

import runner.certify
import runner.recheck
import runner.target
from cmfspec.contract.reference import reference
from cmfspec.format.blueprint import canonical
from conformance.twins import TWINS
from golden.cases import digest
from runner import signing
from runner.certificate import Broken, Certificate, counted, outcomes_digest, read, score, written
from runner.certified import outcomes
from runner.cli import cli
from runner.recheck import _trust
from runner.select import Selection, select
from tests.adapters import HOME, built

ROOT = Path(__file__).resolve().parent.parent
JUDGED = Path(__file__).parent / "hostile" / "judged.py"
PASSWORD = serialization.BestAvailableEncryption(b"secret")
PEM, PKCS8, PLAIN = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()


def cmfspec(*words: object) -> Result:
    """Run a command."""
    return CliRunner().invoke(cli, [str(word) for word in words])


def judged(vice: str) -> str:
    """The command of a reader with a vice."""
    return shlex.join([sys.executable, str(JUDGED), vice])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a key (`key.pem`), and the signed certificate of the C reader (`cert.json`)."""
    folder = tmp_path_factory.mktemp("certificate")
    assert cmfspec("certify", "--new-key", folder / "key.pem").exit_code == 0
    done = cmfspec("certify", "--impl", built("c"), "-o", folder / "cert.json", "--key", folder / "key.pem")
    assert done.exit_code == 0, done.output
    assert "states: conformant" in done.output
    return folder


@pytest.fixture(scope="module")
def public(home: Path) -> str:
    """The public key in hex."""
    return signing.public_of(signing.private_key(str(home / "key.pem")))


def forged(home: Path, change: Callable[[dict[str, Any]], None], path: Path) -> Path:
    """The certificate with a change, unsigned, its digest made to fit."""
    body = json.loads((home / "cert.json").read_text())
    body["signature"] = None
    change(body)
    path.write_text(written(msgspec.convert(body, Certificate))[0])
    return path


def test_a_certificate_says_what_was_judged_by_what(home: Path) -> None:
    """Suite, implementation, capabilities, scores; the digest of the cases and of every outcome."""
    body = json.loads((home / "cert.json").read_text())
    assert body["suite"]["cases_sha256"] == digest()
    assert body["implementation"]["hello"]["name"] == "cmfreader-c"
    assert body["implementation"]["options"]["impl"] == str(built("c"))
    assert [Path(file["path"]).name for file in body["implementation"]["artifacts"]] == ["cmfreader"]
    assert [run["order"] for run in body["runs"]] == ["stored", "shuffled"]
    assert body["runs"][0]["jobs"] != body["runs"][1]["jobs"]
    assert body["score"]["cases"] == len(select("certify").cases)
    assert body["score"]["failed_rules"] == []
    assert (home / "cert.json").read_text() == canonical(body) + "\n"


def test_its_score_is_that_of_a_run(home: Path, tmp_path: Path) -> None:
    """Counted in two places, the same."""
    cmfspec("run", "--impl", built("c"), "--json", tmp_path / "out.jsonl", "--out", tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    stated = json.loads((home / "cert.json").read_text())
    assert stated["score"] == {name: lines[-1][name] for name in stated["score"]}
    outcomes = {line["case"]: line["outcome"] for line in lines if line["type"] == "case"}
    assert outcomes_digest(outcomes) == stated["outcomes_sha256"]
    assert counted(outcomes) == stated["verdicts"]


def test_an_unpinned_key_is_reported_and_a_pinned_one_held_to(home: Path, public: str, tmp_path: Path) -> None:
    """A signature proves nothing until somebody names the key."""
    done = cmfspec("certificate", "verify", home / "cert.json")
    assert done.exit_code == 0
    assert "unpinned" in done.output
    assert json.loads(cmfspec("certificate", "verify", home / "cert.json", "--json").output)["trust"] == "unpinned"
    (tmp_path / "public.hex").write_text(public.upper() + "\n")
    pem = signing.private_key(str(home / "key.pem")).public_key()
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    (tmp_path / "public.pem").write_bytes(pem.public_bytes(PEM, spki))
    for key in (public, tmp_path / "public.hex", tmp_path / "public.pem"):
        done = cmfspec("certificate", "verify", home / "cert.json", "--pubkey", key)
        assert done.exit_code == 0, done.output
        assert "the key that was named" in done.output
    done = cmfspec("certificate", "verify", home / "cert.json", "--pubkey", "0" * 64)
    assert done.exit_code == 1
    assert "does not hold" in done.output


def test_a_certificate_without_a_signature_is_nobodys(home: Path, public: str, tmp_path: Path) -> None:
    """It holds, and says that anybody may have written it; a key that is asked for is missing."""
    bare = forged(home, lambda _: None, tmp_path / "bare.json")
    done = cmfspec("certificate", "verify", bare)
    assert done.exit_code == 0
    assert "not signed" in done.output
    assert cmfspec("certificate", "verify", bare, "--pubkey", public).exit_code == 1


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_no_byte_of_it_can_be_changed(home: Path, tmp_path: Path, signed: bool) -> None:
    """Every byte, a bit of it flipped; and every byte cut off."""
    path = home / "cert.json" if signed else forged(home, lambda _: None, tmp_path / "bare.json")
    raw = path.read_bytes()
    changed = tmp_path / "changed.json"
    for at in range(len(raw)):
        changed.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << at % 7]) + raw[at + 1 :])
        with pytest.raises(Broken):
            _trust(read(str(changed)), None)
    for length in range(0, len(raw), 97):
        changed.write_bytes(raw[:length])
        assert cmfspec("certificate", "verify", changed).exit_code == 1
    changed.write_bytes(raw + b" ")
    assert cmfspec("certificate", "verify", changed).exit_code == 1


LIES: dict[str, Callable[[dict[str, Any]], None]] = {
    "conformant": lambda body: body["score"].update(conformant=False),
    "failed": lambda body: body["score"].update(failed_rules=["ENV-001"]),
    "fewer": lambda body: body["verdicts"].pop("ENV-001"),
    "failing": lambda body: body["verdicts"].update({"ENV-001": {"CRASH": sum(body["verdicts"]["ENV-001"].values())}}),
    "stranger": lambda body: body["verdicts"].update({"ENV-999": {"PASS": 1}}),
    "once": lambda body: body["runs"].pop(),
    "nothing": lambda body: body["verdicts"].clear(),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_score_that_does_not_follow_is_no_score(home: Path, tmp_path: Path, lie: str) -> None:
    """Whoever computes the digest anew still can't state what the verdicts don't say."""
    done = cmfspec("certificate", "verify", forged(home, LIES[lie], tmp_path / "lie.json"))
    assert done.exit_code == 1
    assert "does not hold" in done.output


GARBAGE = {
    "empty": b"",
    "object": b"{}\n",
    "list": b"[]\n",
    "null": b"null\n",
    "no-utf-8": b'{"certificate":\xff}',
    "deep": b"[" * 100000,
    "deep-closed": b"[" * 900 + b"]" * 900 + b"\n",
    "huge-number": b'{"certificate":' + b"9" * 5000 + b"}\n",
    "big-number": b'{"certificate":1000000000000000000000000000000}\n',
    "nan": b'{"certificate":NaN}\n',
    "escapes": b'{"\\u001b[2Jgone":1}\n',
    "nul": bytes(4096),
    "png": b"\x89PNG\r\n\x1a\n",
    "endless": b"1" * (9 * 2**20),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_no_certificate(tmp_path: Path, name: str) -> None:
    """1 and a sentence, in words and in JSON; nothing else leaves."""
    path = tmp_path / "garbage.json"
    path.write_bytes(GARBAGE[name])
    done = cmfspec("certificate", "verify", path)
    assert done.exit_code == 1, done.exception
    assert "does not hold" in done.output
    assert "\x1b" not in done.output
    found = json.loads(cmfspec("certificate", "verify", path, "--json").output)
    assert (found["holds"], found["trust"]) == (False, "none")
    assert found["problems"]


def test_a_certificate_written_in_another_way_is_not_the_one_that_was_issued(home: Path, tmp_path: Path) -> None:
    """Indented, or with a key twice: there is one form."""
    raw = (home / "cert.json").read_text()
    other = tmp_path / "other.json"
    for text in (json.dumps(json.loads(raw), indent=1), raw.replace("{", '{"certificate":1,', 1), raw.strip()):
        other.write_text(text)
        done = cmfspec("certificate", "verify", other)
        assert done.exit_code == 1
        assert "canonical" in done.output


def test_a_replay_finds_the_same(home: Path) -> None:
    """The same files, the same outcomes, in yet another order."""
    done = cmfspec("certificate", "verify", home / "cert.json", "--replay", "--impl", built("c"))
    assert done.exit_code == 0, done.output
    assert f"judged again: {len(select('certify').cases)} cases" in done.output


def test_another_checkout_of_the_same_suite_replays_it(home: Path, tmp_path: Path) -> None:
    """Another folder, another build of the same sources, another process."""
    for package in ("cmfspec", "golden", "fuzz", "conformance", "runner"):
        ignored = shutil.ignore_patterns("__pycache__", "cmfreader*", "target")
        shutil.copytree(ROOT / package, tmp_path / "copy" / package, ignore=ignored)
    adapter = tmp_path / "copy" / HOME.relative_to(ROOT) / "c"
    subprocess.run(["make", "-s", "-C", str(adapter)], check=True)
    command = [sys.executable, "-m", "cmfspec", "certificate", "verify", str(home / "cert.json"), "--json", "--replay"]
    done = subprocess.run(
        [*command, "--impl", str(adapter / "cmfreader")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "copy")},
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)
    assert found["problems"] == []
    assert done.returncode == 0
    assert found["replay"]["cases"] == len(select("certify").cases)


def test_another_binary_is_not_the_one_that_was_certified(home: Path, tmp_path: Path) -> None:
    """One byte more, and the same answers."""
    other = tmp_path / "cmfreader"
    other.write_bytes(built("c").read_bytes() + b"\0")
    other.chmod(0o755)
    done = cmfspec("certificate", "verify", home / "cert.json", "--replay", "--impl", other)
    assert done.exit_code == 1
    assert "is not there any more" in done.output
    assert "was not there" in done.output
    assert "came out" not in done.output


def test_another_implementation_is_named_by_what_differs(home: Path) -> None:
    """Its hello, its files."""
    done = cmfspec("certificate", "verify", home / "cert.json", "--replay")  # the embedded reference
    assert done.exit_code == 1
    assert "hello says name cmfspec, not cmfreader-c" in done.output


def test_what_does_not_answer_is_not_replayed(home: Path) -> None:
    """No yes without a replay that came to its end."""
    done = cmfspec("certificate", "verify", home / "cert.json", "--replay", "--impl", "/nonexistent/reader")
    assert done.exit_code == 3
    assert "does not hold" in done.output
    done = cmfspec("certificate", "verify", home / "cert.json", "--replay", "--impl", judged("refuses_all"))
    assert done.exit_code == 1
    assert "did not come to its end" in done.output


def test_a_certificate_of_another_suite_is_not_replayed(home: Path, tmp_path: Path) -> None:
    """It holds as far as one can see from here; a replay would compare apples and pears."""
    other = forged(home, lambda body: body["suite"].update(cases_sha256="0" * 64), tmp_path / "other.json")
    done = cmfspec("certificate", "verify", other)
    assert done.exit_code == 0
    assert "another than this one" in done.output
    done = cmfspec("certificate", "verify", other, "--replay", "--impl", built("c"))
    assert done.exit_code == 3
    assert "another suite" in done.output


def test_a_reader_with_a_fault_gets_a_certificate_that_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A certificate states the score; exit 1, and 1 again for whoever reads it."""
    twin = next(twin for twin in TWINS if twin.name == "any-data-off")
    monkeypatch.setattr(runner.target, "reference", lambda: reference(twin.parts))
    path = tmp_path / "cert.json"
    done = cmfspec("certify", "-o", path)
    assert done.exit_code == 1
    assert "NOT conformant" in done.output
    assert twin.breaks in json.loads(path.read_text())["score"]["failed_rules"]
    done = cmfspec("certificate", "verify", path)
    assert done.exit_code == 1
    assert f"{path}: holds" in done.output
    assert "NOT conformant" in done.output
    done = cmfspec("certificate", "verify", path, "--replay")
    assert "judged again" in done.output
    monkeypatch.setattr(runner.target, "reference", reference)  # the fault is mended: not what was certified
    done = cmfspec("certificate", "verify", path, "--replay")
    assert done.exit_code == 1
    assert f"{twin.breaks} came out" in done.output


def test_other_cases_of_a_rule_that_fail_are_no_replay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As many as before, and not the same ones."""
    twin = next(twin for twin in TWINS if twin.name == "three-byte-magic")
    monkeypatch.setattr(runner.target, "reference", lambda: reference(twin.parts))
    path = tmp_path / "cert.json"
    assert cmfspec("certify", "-o", path).exit_code == 1

    def swapped(verdicts: Any) -> dict[str, str]:
        found = outcomes(verdicts)
        of_rule = [case for case in found if case.startswith(f"{twin.breaks}/")]
        failed = next(case for case in of_rule if found[case] != "PASS")
        passed = next(case for case in of_rule if found[case] == "PASS")
        return {**found, failed: found[passed], passed: found[failed]}

    monkeypatch.setattr(runner.recheck, "outcomes", swapped)
    done = cmfspec("certificate", "verify", path, "--replay")
    assert "not the same cases" in done.output
    assert "judged again" in done.output
    assert json.loads(cmfspec("certificate", "verify", path, "--json", "--replay").output)["holds"] is False


def test_what_comes_out_otherwise_in_another_order_gets_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hidden state; the cases are named."""
    some = tuple(asked for asked in select("smoke").cases if asked[0].id.startswith("ENV-0"))
    monkeypatch.setattr(runner.certify, "select", lambda _: Selection("certify", some, True))
    path = tmp_path / "cert.json"
    done = cmfspec("certify", "--impl", judged("remembers"), "-o", path, "-j", "1")
    assert done.exit_code == 1
    assert "no certificate" in done.output
    assert ", then " in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_certificate_on_stdout_stands_there_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is for people goes to stderr; and a score of some rules only is not «conformant»."""
    some = tuple(asked for asked in select("certify").cases if asked[0].id == "VAL-004")
    monkeypatch.setattr(runner.certify, "select", lambda _: Selection("certify", some, True))
    done = cmfspec("certify", "-o", "-")
    assert done.exit_code == 1
    (tmp_path / "some.json").write_text(done.stdout)
    assert json.loads(done.stdout)["verdicts"] == {"VAL-004": {"PASS": len(some)}}
    done = cmfspec("certificate", "verify", tmp_path / "some.json")
    assert done.exit_code == 1
    assert "not those of every case" in done.output


def test_a_pipe_is_no_certificate_and_not_waited_for(tmp_path: Path) -> None:
    """Nobody may ever write to it."""
    os.mkfifo(tmp_path / "pipe")
    assert cmfspec("certificate", "verify", tmp_path / "pipe").exit_code == 1
    assert cmfspec("certify", "-o", tmp_path / "cert.json", "--key", tmp_path / "pipe").exit_code == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--impl", "/nonexistent/reader"], 3, "cannot run"),
        (["--impl", judged("refuses_all")], 1, "fails at open"),
        (["--impl", judged("is_elsewhere")], 1, "/nonexistent/reader.so"),
        (["--impl", "a", "--argv", "open=b"], 2, "two implementations"),
    ],
    ids=["nobody", "refuses-all", "is-elsewhere", "two"],
)
def test_who_cannot_be_judged_gets_none(tmp_path: Path, words: list[str], code: int, said: str) -> None:
    """Said at once, and nothing is written."""
    done = cmfspec("certify", *words, "-o", tmp_path / "cert.json")
    assert done.exit_code == code
    assert said in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_known_before_the_work(tmp_path: Path) -> None:
    """A usage error."""
    assert cmfspec("certify").exit_code == 2
    assert cmfspec("certify", "-o", tmp_path / "no" / "cert.json").exit_code == 2
    assert cmfspec("certify", "-o", tmp_path).exit_code == 2
    assert cmfspec("certificate", "verify", tmp_path / "none.json").exit_code == 2
    assert cmfspec("certificate", "verify", tmp_path).exit_code == 2


def test_an_implementation_without_a_replay_is_a_usage_error(home: Path) -> None:
    """Nobody is to believe that something was judged."""
    assert cmfspec("certificate", "verify", home / "cert.json", "--impl", built("c")).exit_code == 2


# --- keys ----------------------------------------------------------------------------------------------------------


def test_a_new_key_is_its_owners_alone_and_never_replaces_one(tmp_path: Path) -> None:
    """0600, and the file must be new."""
    path = tmp_path / "key.pem"
    done = cmfspec("certify", "--new-key", path)
    assert done.exit_code == 0
    assert signing.public_of(signing.private_key(str(path))) in done.output
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    assert cmfspec("certify", "--new-key", path).exit_code == 2
    assert path.read_bytes() == before


def test_a_key_may_be_hex_or_what_openssl_makes(tmp_path: Path) -> None:
    """Two forms, and one of them is the standard one."""
    key = ed25519.Ed25519PrivateKey.generate()
    (tmp_path / "hex").write_text(key.private_bytes_raw().hex() + "\n")
    assert signing.public_of(signing.private_key(str(tmp_path / "hex"))) == signing.public_of(key)
    if shutil.which("openssl"):
        made = tmp_path / "openssl.pem"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(made)], check=True)
        found = signing.private_key(str(made))
        assert signing.signed_by(signing.public_of(found), signing.sign(found, b"x"), b"x")


def pem(key: Any, encryption: Any = PLAIN) -> bytes:
    """A private key as PEM."""
    return bytes(key.private_bytes(PEM, PKCS8, encryption))


NO_KEYS = {
    "empty": b"",
    "text": b"my key",
    "short-hex": b"ab" * 31,
    "binary": bytes(range(256)),
    "half": pem(ed25519.Ed25519PrivateKey.generate())[:60],
    "elliptic": pem(ec.generate_private_key(ec.SECP256R1())),
    "encrypted": pem(ed25519.Ed25519PrivateKey.generate(), PASSWORD),
}


@pytest.mark.parametrize("name", NO_KEYS)
def test_what_is_no_key_is_a_usage_error(home: Path, tmp_path: Path, name: str) -> None:
    """2, before anything is judged, with the file's name."""
    path = tmp_path / "key"
    path.write_bytes(NO_KEYS[name])
    for done in (
        cmfspec("certify", "-o", tmp_path / "cert.json", "--key", path),
        cmfspec("certificate", "verify", home / "cert.json", "--pubkey", path),
    ):
        assert done.exit_code == 2, done.output
        assert str(path) in done.output.replace("\n", "").replace("│", "")
    assert cmfspec("certify", "-o", tmp_path / "cert.json", "--key", tmp_path / "none").exit_code == 2


def test_without_the_package_nothing_signed_passes_for_checked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3: not judged; and a key can't be used."""
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    done = cmfspec("certificate", "verify", home / "cert.json")
    assert done.exit_code == 3
    assert "cmfspec[sign]" in done.output
    assert "does not hold" in done.output
    assert cmfspec("certify", "-o", home / "x.json", "--key", home / "key.pem").exit_code == 2
    assert cmfspec("certify", "--new-key", home / "y.pem").exit_code == 2


def test_a_score_of_nothing_is_not_conformant() -> None:
    """Zero verdicts, or only those of one rule, prove nothing."""
    assert not score({}).conformant
    assert not score({"ENV-001": {"PASS": 1}}).conformant
