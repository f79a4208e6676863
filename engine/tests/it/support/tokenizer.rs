//! A minimal writer of SentencePiece models.

/// Type of a piece, as numbered in `sentencepiece_model.proto`.
fn kind(text: &str) -> u8 {
    match text {
        "<unk>" => 2,
        "<s>" | "</s>" => 3,
        _ if text.starts_with("<0x") => 6,
        _ => 1,
    }
}

/// Writes a byte-pair model with byte fallback and a space prefix, like Llama's.
pub(crate) fn model(pieces: &[(String, f32)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (text, score) in pieces {
        let mut piece = vec![0x0a];
        length(&mut piece, text.len());
        piece.extend(text.as_bytes());
        piece.push(0x15);
        piece.extend(score.to_le_bytes());
        piece.extend([0x18, kind(text)]);
        out.push(0x0a);
        length(&mut out, piece.len());
        out.extend(piece);
    }
    out.extend([0x12, 5, 0x18, 2, 0x98, 0x02, 1]); // trainer: byte pairs, byte fallback
    out.extend([0x1a, 4, 0x18, 1, 0x20, 0]); // normalizer: space prefix, spaces kept
    out
}

fn length(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
