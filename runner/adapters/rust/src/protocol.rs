//! protocol.rs: lines to requests, outcomes to lines.
//!
//! Its law: "exactly one of ok, refused, unsupported, error". Replies are ASCII and short: a string that isn't ASCII is told
//! as {"hex": "…"}, a long message is cut. A refusal has the kind of the crate's own error, by the name of its variant.
use cortiq_core::CmfError;
use serde_json::{json, Value};

/// Variants of the crate's error that have a kind; any other is Other. By name: no release has to have them all.
const KINDS: [(&str, &str); 6] = [
    ("InvalidMagic", "InvalidMagic"),
    ("UnsupportedVersion", "UnsupportedVersion"),
    ("UnsupportedFeature", "UnsupportedFeature"),
    ("Bounds", "Bounds"),
    ("Parse", "Parse"),
    ("UnknownDtype", "Parse"),
];
const OTHER: &str = "Other";
const MESSAGE: usize = 1000; // letters of a message: it may hold what the file holds

/// One question. Members that the operation does not use are None.
pub struct Request {
    pub id: u64,
    pub op: String,
    pub file: String,
    pub index: Option<u64>,
    pub form: Option<String>,
    pub dtype: Option<u64>,
    pub shape: Vec<usize>,
    pub out: Option<String>,
}

/// Why there is no `ok`.
pub enum Fault {
    Refused { kind: &'static str, message: String },
    Unsupported,
    Error(String),
}

pub type Outcome = Result<Value, Fault>;

impl Request {
    pub fn parse(line: &[u8]) -> Option<Self> {
        let members: Value = serde_json::from_slice(line).ok()?;
        let string = |name: &str| members.get(name)?.as_str().map(String::from);
        Some(Self {
            id: members.get("id")?.as_u64()?,
            op: string("op")?,
            file: string("file")?,
            index: members.get("index").and_then(Value::as_u64),
            form: string("as"),
            dtype: members.get("dtype").and_then(Value::as_u64),
            shape: members
                .get("shape")
                .and_then(|shape| serde_json::from_value(shape.clone()).ok())
                .unwrap_or_default(),
            out: string("out"),
        })
    }
}

impl Fault {
    /// A refusal of which the crate says no more than why.
    pub fn other(message: impl ToString) -> Self {
        let message = message.to_string();
        Self::Refused { kind: OTHER, message }
    }
}

impl From<CmfError> for Fault {
    fn from(error: CmfError) -> Self {
        let shown = format!("{error:?}");
        let variant = shown.split(|c: char| !c.is_alphanumeric()).next();
        let row = KINDS.iter().find(|(name, _)| Some(*name) == variant);
        Self::Refused { kind: row.map_or(OTHER, |(_, kind)| kind), message: error.to_string() }
    }
}

/// The line for an outcome, without its newline. id: None if the request could not be read.
pub fn reply(id: Option<u64>, outcome: Outcome) -> Value {
    match outcome {
        Ok(body) => json!({"id": id, "ok": body}),
        Err(Fault::Refused { kind, message }) => {
            json!({"id": id, "refused": {"kind": kind, "message": text(&cut(message))}})
        }
        Err(Fault::Unsupported) => json!({"id": id, "unsupported": {}}),
        Err(Fault::Error(message)) => json!({"id": id, "error": {"message": text(&cut(message))}}),
    }
}

/// A string, in ASCII.
pub fn text(string: &str) -> Value {
    if string.is_ascii() {
        return string.into(); // with control characters escaped, as JSON wants it
    }
    let hex: String = string.bytes().map(|byte| format!("{byte:02x}")).collect();
    json!({ "hex": hex })
}

fn cut(message: String) -> String {
    match message.char_indices().nth(MESSAGE) {
        Some((end, _)) => format!("{}...", &message[..end]),
        None => message,
    }
}
