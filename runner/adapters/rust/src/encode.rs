//! encode.rs: the encoders that the crate offers to whoever links it.
//!
//! Its law: only what is public there is declared. Releases without any (build.rs knows) declare no `encode`.
use crate::protocol::{Fault, Request};
use std::fs;

type Encoder = fn(&[f32], usize, usize) -> Vec<u8>;

/// Ids of the text, with what encodes a matrix of so many rows and columns.
#[cfg(encodes)]
pub const ENCODERS: &[(u8, Encoder)] = &[(9, cortiq_core::quant::encode_q8_2f)];
#[cfg(not(encodes))]
pub const ENCODERS: &[(u8, Encoder)] = &[];

pub fn encode(request: &Request) -> Result<Vec<u8>, Fault> {
    let row = ENCODERS.iter().find(|(id, _)| Some(u64::from(*id)) == request.dtype);
    let (_, encoder) = row.ok_or(Fault::Unsupported)?;
    let &[rows, cols] = request.shape.as_slice() else {
        return Err(Fault::other("the crate encodes matrices only"));
    };
    let bytes = fs::read(&request.file).map_err(Fault::other)?;
    let each = bytes.chunks_exact(4);
    let weights: Vec<f32> = each.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    if rows.checked_mul(cols) != Some(weights.len()) {
        return Err(Fault::Error(format!("{} values for {rows} times {cols}", weights.len())));
    }
    Ok(encoder(&weights, rows, cols))
}

pub fn ids() -> Vec<u8> {
    ENCODERS.iter().map(|(id, _)| *id).collect()
}
