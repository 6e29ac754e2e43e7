//! probe.rs: which dtype ids the crate takes, found by asking it.
//!
//! Its law: "`dtypes` the ids that you decode. List also what you know beyond the text". An id of the text is declared if
//! a tiny file with a tensor of it opens and decodes; one beyond the text if the crate has a name for it, since only the
//! crate knows what its payload looks like.
use crate::answer::values;
use crate::caught;
use crate::protocol::Fault;
use cortiq_core::quant::expected_nbytes;
use cortiq_core::{hash64, CmfModel, TensorDtype};
use std::{env, fs, process};

const BEYOND: u8 = 16; // the first id that the text (§3.1) does not have
const SHAPE: [usize; 2] = [1, 128]; // four groups of 32: a multiple of every group that there is
const HEADER: &str = concat!(
    r#"{"format":"cmf","version":2,"arch":{"arch_name":"probe","hidden_size":128,"intermediate_size":128,"#,
    r#""num_layers":1,"num_attention_heads":1,"num_kv_heads":1,"head_dim":128,"vocab_size":128,"#,
    r#""layer_types":["FullAttention"],"rms_norm_eps":1e-6,"norm_style":"qwen","rope_theta":10000.0,"#,
    r#""tie_word_embeddings":true,"max_position_embeddings":128},"quant_type":"F16"}"#
);
const FEATURES: u32 = 0b101; // TENSOR_DIR, and QUANT_2F for the encodings that need it
const ENVELOPE: usize = 128;
const DATA: usize = 4096;

/// Payloads that tell their own length (§3.2), as bytes and how often: all weights are zero. The rest are zeros of the length
/// that the crate wants.
type Runs = &'static [(u8, usize)];
const TELLING: [(u8, Runs); 4] = [
    (8, &[(3, 1), (0, 8), (0, 48)]), // vbit: width 3, four scales, 128 · 3 bits
    (10, &[(3, 1), (0, 8), (0, 4), (48, 1), (0, 3), (0, 48)]), // vbit_ro: with offsets 0 and 48
    (13, &[(0, 4 * 6), (0, 4)]),     // q1s: no outliers
    (14, &[(0, 4 * 9), (0, 8)]),     // q1t: no outliers in the row
];

pub fn dtypes() -> Result<Vec<u8>, Fault> {
    let path = env::temp_dir().join(format!("cmfreader-rust-{}.cmf", process::id()));
    let mut taken = Vec::new();
    for id in 0..BEYOND {
        let written = fs::write(&path, file(id, &payload(id)));
        written.map_err(|error| Fault::Error(format!("{}: {error}", path.display())))?;
        let decoded = caught(|| {
            let model = CmfModel::open(&path)?;
            let entry = &model.tensors[0];
            values(entry, model.entry_bytes(entry))
        });
        taken.extend(decoded.is_ok().then_some(id));
        let _ = fs::remove_file(&path); // a new file each time: the crate maps it
    }
    taken.extend((BEYOND..=u8::MAX).filter(|id| TensorDtype::from_id(*id).is_some()));
    Ok(taken)
}

fn payload(id: u8) -> Vec<u8> {
    if let Some((_, runs)) = TELLING.iter().find(|(telling, _)| *telling == id) {
        return runs.iter().flat_map(|(byte, times)| vec![*byte; *times]).collect();
    }
    let length = TensorDtype::from_id(id).and_then(|dtype| expected_nbytes(dtype, &SHAPE));
    vec![0; length.unwrap_or(64)]
}

/// A file of one tensor (§1, §3).
fn file(id: u8, payload: &[u8]) -> Vec<u8> {
    let directory = directory(id, payload);
    let dir_at = ENVELOPE + HEADER.len();
    let mut bytes = b"CMF\x01".to_vec();
    for field in [2, 0, FEATURES] {
        bytes.extend(u32::to_le_bytes(field)); // version, flags, required_features
    }
    for (off, len) in [(ENVELOPE, HEADER.len()), (dir_at, directory.len()), (DATA, payload.len())] {
        bytes.extend((off as u64).to_le_bytes());
        bytes.extend((len as u64).to_le_bytes());
    }
    bytes.resize(ENVELOPE, 0); // no masks, vocab or index, and no hashes
    bytes.extend(HEADER.bytes());
    bytes.extend(directory);
    bytes.resize(DATA, 0);
    bytes.extend(payload);
    bytes
}

fn directory(id: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(1u64.to_le_bytes()); // one record of 56 bytes, then the pool
    bytes.extend(72u64.to_le_bytes());
    bytes.extend([0, 0, 0, 0, 1, 0, id, 2]); // name_off, name_len, dtype, ndim
    for dimension in [SHAPE[0], SHAPE[1], 0, 0, 0, 0] {
        bytes.extend((dimension as u32).to_le_bytes());
    }
    for field in [0, payload.len() as u64, hash64(payload)] {
        bytes.extend(field.to_le_bytes()); // off, nbytes, hash
    }
    bytes.extend(b"w");
    bytes
}
