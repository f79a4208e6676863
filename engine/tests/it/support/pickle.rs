//! A minimal writer of PyTorch's checkpoint format: an uncompressed zip of a pickle and one file per tensor.

use flate2::Crc;

use super::NamedTensor;

/// Writes tensors as `torch.save` writes a state dict: in float32, or in float16 with `half`.
pub(crate) fn pickle(tensors: &[NamedTensor], half: bool) -> Vec<u8> {
    let mut files = vec![("archive/data.pkl".to_owned(), state(tensors, half))];
    for (index, (_, _, values)) in tensors.iter().enumerate() {
        let bytes = if half {
            values.iter().flat_map(|value| half::f16::from_f32(*value).to_le_bytes()).collect()
        } else {
            values.iter().flat_map(|value| value.to_le_bytes()).collect()
        };
        files.push((format!("archive/data/{index}"), bytes));
    }
    zip(&files)
}

/// Returns the pickle: an ordered dict of names to `_rebuild_tensor_v2` calls.
fn state(tensors: &[NamedTensor], half: bool) -> Vec<u8> {
    let mut out = b"\x80\x02ccollections\nOrderedDict\n)R(".to_vec();
    for (index, (name, shape, values)) in tensors.iter().enumerate() {
        text(&mut out, name);
        out.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        text(&mut out, "storage");
        out.extend(if half { &b"ctorch\nHalfStorage\n"[..] } else { &b"ctorch\nFloatStorage\n"[..] });
        text(&mut out, &index.to_string());
        text(&mut out, "cpu");
        integer(&mut out, values.len());
        out.extend(b"tQ");
        integer(&mut out, 0);
        out.push(b'(');
        shape.iter().for_each(|size| integer(&mut out, *size));
        out.extend(b"t(");
        (0..shape.len()).for_each(|axis| integer(&mut out, shape[axis + 1..].iter().product()));
        out.extend(b"t\x89ccollections\nOrderedDict\n)RtR");
    }
    out.extend(b"u.");
    out
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(b'X');
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.as_bytes());
}

fn integer(out: &mut Vec<u8>, value: usize) {
    out.push(b'J');
    out.extend((value as i32).to_le_bytes());
}

fn zip(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in files {
        let mut crc = Crc::new();
        crc.update(bytes);
        let mut entry = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0]; // version, flags, stored, 1980-01-01
        entry.extend(crc.sum().to_le_bytes());
        entry.extend((bytes.len() as u32).to_le_bytes());
        entry.extend((bytes.len() as u32).to_le_bytes());
        entry.extend((name.len() as u16).to_le_bytes());
        entry.extend([0, 0]);
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(&entry);
        directory.extend([0; 10]);
        directory.extend((out.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        out.extend(b"PK\x03\x04");
        out.extend(&entry);
        out.extend(name.as_bytes());
        out.extend(bytes);
    }
    let start = out.len() as u32;
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend((files.len() as u16).to_le_bytes());
    out.extend((files.len() as u16).to_le_bytes());
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0, 0]);
    out
}
