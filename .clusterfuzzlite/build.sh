#!/bin/bash -eu
# One fuzzer for each target, with its seeds and the dictionary. Run by the builder's image, which sets SRC and OUT and has
# compile_python_fuzzer; a target that is added to fuzz/targets.py gets its fuzzer without a word here.
pip3 install .

entries=$(mktemp -d)
python3 - "$entries" <<'PY'
import sys
from pathlib import Path

from fuzz.targets import TARGETS

for name in TARGETS:
    text = f"import sys\n\nfrom fuzz.guided import guided\n\nguided({name!r}, sys.argv[1:], None, None)\n"
    Path(sys.argv[1], f"fuzz_{name.replace('.', '_')}.py").write_text(text)
PY

for entry in "$entries"/fuzz_*.py; do
  name=$(basename "$entry" .py)
  compile_python_fuzzer "$entry" --collect-all cmfspec --collect-all golden --collect-all fuzz
  cmfspec corpus export "$entries/seeds" --dict "$OUT/$name.dict" > /dev/null
done

# Whole files are seeds of the targets of whole files; the others begin with what they make themselves.
(cd "$entries/seeds" && zip -q -r "$entries/seeds.zip" .)
for name in container decoding verify rebuilding; do
  cp "$entries/seeds.zip" "$OUT/fuzz_${name}_seed_corpus.zip"
done
