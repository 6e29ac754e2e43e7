//! answer.rs: the operations, each a question to cortiq-core.
//!
//! Its law: the crate is asked, and what it says is told; nothing is checked, mended or left out on the way. Only calls are
//! used that every release of the crate has, encode.rs aside. The list in hello is read off the table that does the work.
use crate::encode;
use crate::probe;
use crate::protocol::{text, Fault, Outcome, Request};
use cortiq_core::format::features::SUPPORTED;
use cortiq_core::quant::dequant_tensor;
use cortiq_core::{hash64, CmfModel, TensorEntry};
use serde_json::{json, Value};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};

pub const LAST: &str = "bye";
const ENCODE: &str = "encode";
const PROBLEMS: usize = 1000; // of verify, told one by one

type Operation = (&'static str, fn(&Request) -> Outcome);
const OPERATIONS: [Operation; 10] = [
    ("hello", hello),
    ("ping", nothing),
    ("open", open),
    ("header", header),
    ("tensors", tensors),
    ("tensor", tensor),
    ("verify", verify),
    ("hash64", hash),
    (ENCODE, encoded),
    (LAST, nothing),
];

/// How the crate's verify begins a sentence about a section; `where` and `kind` of the problem. Tensors: `place`.
const SENTENCES: [(&str, &str, &str); 8] = [
    ("section 'header': hash mismatch", "header", "hash"),
    ("section 'dir': hash mismatch", "dir", "hash"),
    ("section 'masks': hash mismatch", "masks", "hash"),
    ("section 'vocab': hash mismatch", "vocab", "hash"),
    ("section 'index': hash mismatch", "index", "hash"),
    ("section 'masks': malformed", "section_hashes", "malformed"),
    ("section 'vocab': malformed", "section_hashes", "malformed"),
    ("section 'index': malformed", "section_hashes", "malformed"),
];

pub fn answer(request: &Request) -> Outcome {
    let row = OPERATIONS.iter().find(|(op, _)| *op == request.op);
    row.map_or(Err(Fault::Unsupported), |(_, ask)| ask(request))
}

fn nothing(_: &Request) -> Outcome {
    Ok(json!({}))
}

fn hello(_: &Request) -> Outcome {
    let encodes = encode::ids();
    let known = OPERATIONS.iter().map(|(op, _)| *op);
    let operations: Vec<_> = known.filter(|op| *op != ENCODE || !encodes.is_empty()).collect();
    let features: Vec<u32> = (0..32).filter(|bit| SUPPORTED >> bit & 1 == 1).collect();
    let own = std::env::current_exe().map_err(|error| Fault::Error(error.to_string()))?;
    let release = if cfg!(debug_assertions) { "debug" } else { "release" };
    Ok(json!({
        "protocol": 1, "name": "cortiq-core", "version": env!("CORTIQ_CORE_VERSION"), "language": "Rust",
        "build": release, "operations": operations, "features": features, "dtypes": probe::dtypes()?,
        "kinds": true, "encodes": encodes, "artifacts": [text(&own.to_string_lossy())],
    }))
}

fn open(request: &Request) -> Outcome {
    let model = CmfModel::open(&request.file)?;
    let sections = [
        ("masks", !model.masks.masks.is_empty()),
        ("vocab", model.vocab.is_some()),
        ("index", !model.sparse_index.is_empty()),
    ];
    let sections: Vec<_> = sections.iter().filter(|(_, seen)| *seen).collect();
    let sections: Vec<_> = sections.iter().map(|(name, _)| name).collect();
    Ok(json!({"tensors": model.tensors.len(), "sections": sections}))
}

fn header(request: &Request) -> Outcome {
    let model = CmfModel::open(&request.file)?;
    let seen = serde_json::to_vec(&model.header).map_err(|error| Fault::Error(error.to_string()))?;
    written(request, |out| out.write_all(&seen))
}

fn tensors(request: &Request) -> Outcome {
    let model = CmfModel::open(&request.file)?;
    written(request, |out| {
        model.tensors.iter().try_for_each(|entry| {
            let line = json!({
                "name": text(&entry.name), "dtype": entry.dtype.id(), "shape": entry.shape,
                "off": entry.off.to_string(), "nbytes": entry.nbytes.to_string(),
                "hash": format!("{:016x}", entry.hash),
            });
            writeln!(out, "{line}")
        })
    })
}

fn tensor(request: &Request) -> Outcome {
    let model = CmfModel::open(&request.file)?;
    let index = request.index.and_then(|index| usize::try_from(index).ok());
    let entry = index.and_then(|index| model.tensors.get(index));
    let entry = entry.ok_or_else(|| Fault::Error("no tensor has this index".into()))?;
    let bytes = model.entry_bytes(entry);
    match request.form.as_deref() {
        Some("raw") => written(request, |out| out.write_all(bytes)),
        Some("f32") => {
            let values = values(entry, bytes)?;
            written(request, |out| {
                let mut each = values.iter();
                each.try_for_each(|value| out.write_all(&value.to_le_bytes()))
            })
        }
        _ => Err(Fault::Error("`as` is f32 or raw".into())),
    }
}

/// The crate fills a place for as many values as the entry declares; it is the caller who has to provide it.
pub fn values(entry: &TensorEntry, bytes: &[u8]) -> Result<Vec<f32>, Fault> {
    let count = entry.n_elems();
    let mut values = Vec::new();
    let room = values.try_reserve_exact(count);
    room.map_err(|error| Fault::Error(format!("a place for {count} values: {error}")))?;
    values.resize(count, 0.0);
    dequant_tensor(entry, bytes, &mut values).map_err(Fault::other)?;
    Ok(values)
}

fn verify(request: &Request) -> Outcome {
    let model = CmfModel::open(&request.file)?;
    let sentences = model.verify();
    let mut next = 0;
    let told = sentences.iter().take(PROBLEMS);
    let problems: Vec<Value> = told.map(|said| place(said, &model.tensors, &mut next)).collect();
    Ok(json!({"sound": sentences.is_empty(), "problems": problems}))
}

/// Where the trouble is that a sentence of the crate's verify tells. next: the first tensor that wasn't named yet; the crate
/// goes through them in order, and names may be equal.
fn place(said: &str, tensors: &[TensorEntry], next: &mut usize) -> Value {
    let row = SENTENCES.iter().find(|(start, ..)| said.starts_with(start));
    if let Some((_, place, kind)) = row {
        return json!({"where": place, "kind": kind});
    }
    let named = |entry: &TensorEntry| {
        said.starts_with(&format!("tensor '{}': hash mismatch (stored {:016x},", entry.name, entry.hash))
    };
    match tensors[*next..].iter().position(named) {
        Some(step) => {
            *next += step + 1;
            json!({"where": "tensor", "index": *next - 1, "kind": "hash"})
        }
        None => {
            eprintln!("verify says: {said}");
            json!({"where": "other"})
        }
    }
}

/// The crate hashes bytes and reads no file: here it is the adapter that looks what the path leads to.
fn hash(request: &Request) -> Outcome {
    if !fs::metadata(&request.file).map_err(Fault::other)?.is_file() {
        return Err(Fault::other("not a regular file"));
    }
    let bytes = fs::read(&request.file).map_err(Fault::other)?;
    Ok(json!({"hash": format!("{:016x}", hash64(&bytes))}))
}

fn encoded(request: &Request) -> Outcome {
    let payload = encode::encode(request)?;
    written(request, |out| out.write_all(&payload))
}

/// "Longer answers go to the new file that the request names in `out`."
fn written(request: &Request, fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Outcome {
    let out = request.out.as_deref();
    let out = out.ok_or_else(|| Fault::Error("the request names no `out`".into()))?;
    let done = File::create(out).map(BufWriter::new).and_then(|mut out| {
        fill(&mut out)?;
        out.flush()
    });
    done.map_err(|error| Fault::Error(format!("out can't be written: {error}")))?;
    Ok(json!({}))
}
