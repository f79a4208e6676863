//! Unpacks weights of AWQ and GPTQ from safetensors.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lumos_engine::fuzzing::packed_weights;

/// Separates the header of the file from the bits of its tensors.
const BETWEEN: u8 = 0;
/// Most bytes of the tensors.
const MOST: usize = 1 << 16;

fuzz_target!(|input: &[u8]| {
    let [layout, group_size, rest @ ..] = input else { return };
    let mut parts = rest.splitn(2, |byte| *byte == BETWEEN);
    let header = parts.next().unwrap_or_default();
    let bits = parts.next().filter(|bits| !bits.is_empty()).unwrap_or(&[BETWEEN]);
    // The format requires exactly as many bytes as the tensors cover, which would reject almost every input.
    let Ok(table) = serde_json::from_slice::<serde_json::Value>(header) else { return };
    let ends = table.as_object().into_iter().flat_map(|table| table.values());
    let ends = ends.filter_map(|tensor| usize::try_from(tensor["data_offsets"][1].as_u64()?).ok());
    let length = ends.max().unwrap_or(0).min(MOST);
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header);
    file.extend(bits.iter().copied().cycle().take(length));
    packed_weights(*layout, *group_size, file);
});
