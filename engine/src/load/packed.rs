//! Weights packed into 32-bit words: the layouts of AWQ and GPTQ checkpoints.
//!
//! A packed module `X` has `X.qweight`, `X.qzeros`, `X.scales` and, for GPTQ, `X.g_idx` instead of `X.weight`.
//! [`Packing`] gives the shapes of these tensors and computes the weight from them in float32:
//! `(code - zero) · scale`, which is exact for scales in half precision. [`Weights`](super::weights::Weights)
//! calls it when the model requests `X.weight`; `quantization` reads which layout a checkpoint has.

use rayon::prelude::*;

/// Bits of a word.
const WORD: usize = 32;
/// Position of each of eight consecutive outputs in a word of AWQ.
const AWQ_POSITIONS: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// The layout of packed weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packing {
    pub(super) layout: Layout,
    /// Inputs that share a scale and a zero; `None` for all.
    pub(super) group_size: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// AWQ's `gemm`: 4 bits, packed along the outputs in its own order.
    Awq,
    /// GPTQ: packed along the inputs, in order.
    Gptq {
        /// 4 or 8.
        bits: usize,
        /// Whether one was subtracted from each zero before packing, as in `checkpoint_format` `gptq`.
        zeros_less_one: bool,
    },
}

/// The shapes of the tensors of a module, as rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedShapes {
    pub(super) words: [usize; 2],
    pub(super) zeros: [usize; 2],
    pub(super) scales: [usize; 2],
}

/// The tensors of a module, in row order and with the shapes of [`Packing::shapes`].
pub(super) struct PackedModule<'a> {
    pub(super) words: &'a [u32],
    pub(super) zeros: &'a [u32],
    pub(super) scales: &'a [f32],
    /// The group of each input (`g_idx`); consecutive groups without it.
    pub(super) groups: Option<&'a [u32]>,
}

impl Packing {
    fn bits(self) -> usize {
        match self.layout {
            Layout::Awq => 4,
            Layout::Gptq { bits, .. } => bits,
        }
    }

    /// Codes per word.
    fn per_word(self) -> usize {
        WORD / self.bits()
    }

    /// The format for people: `AWQ 4-bit`.
    pub(super) fn label(self) -> String {
        let name = match self.layout {
            Layout::Awq => "AWQ",
            Layout::Gptq { .. } => "GPTQ",
        };
        format!("{name} {}-bit", self.bits())
    }

    /// Outputs and inputs of the weight whose `qweight` has the given shape.
    pub(super) fn unpacked(self, [rows, columns]: [usize; 2]) -> [usize; 2] {
        match self.layout {
            Layout::Awq => [columns.saturating_mul(self.per_word()), rows],
            Layout::Gptq { .. } => [columns, rows.saturating_mul(self.per_word())],
        }
    }

    /// The shapes of the tensors of a weight (outputs × inputs).
    ///
    /// # Errors
    /// Fails if the weight cannot be divided into words and groups.
    pub(super) fn shapes(self, [outputs, inputs]: [usize; 2]) -> Result<PackedShapes, String> {
        let per_word = self.per_word();
        let group = self.group_size.unwrap_or(inputs);
        if outputs == 0 || inputs == 0 || !outputs.is_multiple_of(per_word) {
            return Err(format!("{outputs} outputs are not a positive multiple of {per_word}"));
        }
        let words = match self.layout {
            Layout::Awq if !inputs.is_multiple_of(group) => {
                return Err(format!("{inputs} inputs are not a multiple of the group size {group}"));
            }
            Layout::Awq => [inputs, outputs / per_word],
            Layout::Gptq { .. } if !inputs.is_multiple_of(per_word) => {
                return Err(format!("{inputs} inputs are not a multiple of {per_word}"));
            }
            Layout::Gptq { .. } => [inputs / per_word, outputs],
        };
        let groups = inputs.div_ceil(group);
        Ok(PackedShapes { words, zeros: [groups, outputs / per_word], scales: [groups, outputs] })
    }

    /// Computes the weight (outputs × inputs, in row order).
    ///
    /// # Errors
    /// Fails if `g_idx` names a group that the module does not have.
    ///
    /// # Panics
    /// Panics if the tensors do not have the shapes of [`shapes`](Self::shapes).
    pub(super) fn unpack(
        self,
        module: &PackedModule<'_>,
        [outputs, inputs]: [usize; 2],
    ) -> Result<Vec<f32>, String> {
        let shapes = self.shapes([outputs, inputs])?;
        let [groups, _] = shapes.scales;
        let group_size = self.group_size.unwrap_or(inputs);
        let group_of: Vec<usize> = match module.groups {
            Some(groups) => groups.iter().map(|group| *group as usize).collect(),
            None => (0..inputs).map(|input| input / group_size).collect(),
        };
        assert_eq!(group_of.len(), inputs, "one group for each input");
        if let Some(input) = group_of.iter().position(|group| *group >= groups) {
            return Err(format!(
                "g_idx of input {input} is {}, but there are {groups} groups",
                group_of[input]
            ));
        }
        let zeros = self.zeros(module.zeros, outputs);
        let (per_word, [_, stride]) = (self.per_word(), shapes.words);
        let mut weight = vec![0.0; outputs * inputs];
        // Blocks of as many outputs as AWQ packs into a word, so that a cache line of words is read once.
        weight.par_chunks_mut(per_word * inputs).enumerate().for_each(|(block, rows)| {
            for (input, group) in group_of.iter().enumerate() {
                for lane in 0..per_word {
                    let output = block * per_word + lane;
                    let code = match self.layout {
                        Layout::Awq => self.code(module.words[input * stride + block], AWQ_POSITIONS[lane]),
                        Layout::Gptq { .. } => {
                            self.code(module.words[input / per_word * stride + output], input % per_word)
                        }
                    };
                    let at = group * outputs + output;
                    rows[lane * inputs + input] = (code as f32 - zeros[at]) * module.scales[at];
                }
            }
        });
        Ok(weight)
    }

    /// The code at a position of a word.
    fn code(self, word: u32, position: usize) -> u32 {
        let bits = self.bits();
        word >> (bits * position) & ((1 << bits) - 1)
    }

    /// The zeros of all groups and outputs. Both layouts pack them along the outputs.
    fn zeros(self, words: &[u32], outputs: usize) -> Vec<f32> {
        let per_word = self.per_word();
        // One is added to the whole word, which undoes the subtraction also where it borrowed from the next code.
        let added = match self.layout {
            Layout::Gptq { bits, zeros_less_one: true } => u32::MAX / ((1 << bits) - 1),
            _ => 0,
        };
        let zero = |index: usize| {
            let (row, output) = (index / outputs, index % outputs);
            let word = words[row * (outputs / per_word) + output / per_word].wrapping_add(added);
            let position = match self.layout {
                Layout::Awq => AWQ_POSITIONS[output % per_word],
                Layout::Gptq { .. } => output % per_word,
            };
            self.code(word, position) as f32
        };
        (0..words.len() * per_word).map(zero).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::fixtures::Uniform;
    use crate::load::folder::{WeightFormat, WeightPaths};
    use crate::load::weights::Weights;

    const OUTPUTS: usize = 16;
    const INPUTS: usize = 24;

    /// Codes and zeros for every output and input, packed word by word as the formats define.
    struct Written {
        words: Vec<u32>,
        zeros: Vec<u32>,
        scales: Vec<f32>,
        expected: Vec<f32>,
    }

    fn set(words: &mut [u32], at: usize, code: usize, bits: usize, position: usize) {
        words[at] |= (code as u32) << (bits * position);
    }

    fn written(packing: Packing, groups: &[u32]) -> Written {
        let mut random = Uniform::new(3);
        let (bits, per_word) = (packing.bits(), packing.per_word());
        let shapes = packing.shapes([OUTPUTS, INPUTS]).unwrap();
        let count = shapes.scales[0];
        let codes: Vec<usize> = (0..OUTPUTS * INPUTS).map(|_| random.below(1 << bits)).collect();
        let zeros: Vec<usize> = (0..count * OUTPUTS).map(|_| 1 + random.below((1 << bits) - 1)).collect();
        let scales = random.values(count * OUTPUTS, 1.0);
        let mut words = vec![0; shapes.words.iter().product()];
        let mut zero_words = vec![0; shapes.zeros.iter().product()];
        for output in 0..OUTPUTS {
            for input in 0..INPUTS {
                let (at, position) = match packing.layout {
                    // Nibbles 0 to 7 of a word have outputs 0, 2, 4, 6, 1, 3, 5, 7.
                    Layout::Awq => (input * OUTPUTS / 8 + output / 8, output % 2 * 4 + output % 8 / 2),
                    Layout::Gptq { .. } => (input / per_word * OUTPUTS + output, input % per_word),
                };
                set(&mut words, at, codes[output * INPUTS + input], bits, position);
            }
            for group in 0..count {
                let (less, position) = match packing.layout {
                    Layout::Awq => (0, output % 2 * 4 + output % 8 / 2),
                    Layout::Gptq { zeros_less_one, .. } => (usize::from(zeros_less_one), output % per_word),
                };
                let at = group * OUTPUTS / per_word + output / per_word;
                set(&mut zero_words, at, zeros[group * OUTPUTS + output] - less, bits, position);
            }
        }
        let value = |at: usize| {
            let (output, input) = (at / INPUTS, at % INPUTS);
            let of_group = groups[input] as usize * OUTPUTS + output;
            (codes[at] as f32 - zeros[of_group] as f32) * scales[of_group]
        };
        let expected = (0..OUTPUTS * INPUTS).map(value).collect();
        Written { words, zeros: zero_words, scales, expected }
    }

    fn layouts() -> Vec<Layout> {
        let gptq = |bits, zeros_less_one| Layout::Gptq { bits, zeros_less_one };
        vec![Layout::Awq, gptq(4, true), gptq(4, false), gptq(8, true), gptq(8, false)]
    }

    fn unpack(packing: Packing, written: &Written, groups: Option<&[u32]>) -> Result<Vec<f32>, String> {
        let Written { words, zeros, scales, .. } = written;
        packing.unpack(&PackedModule { words, zeros, scales, groups }, [OUTPUTS, INPUTS])
    }

    #[test]
    fn unpacked_weights_are_those_packed() {
        for layout in layouts() {
            for group_size in [None, Some(8), Some(24)] {
                let packing = Packing { layout, group_size };
                let size = group_size.unwrap_or(INPUTS);
                let groups: Vec<u32> = (0..INPUTS).map(|input| (input / size) as u32).collect();
                let written = written(packing, &groups);
                assert_eq!(unpack(packing, &written, None).unwrap(), written.expected, "{packing:?}");
                assert_eq!(
                    unpack(packing, &written, Some(&groups)).unwrap(),
                    written.expected,
                    "{packing:?}"
                );
                let words = packing.shapes([OUTPUTS, INPUTS]).unwrap().words;
                assert_eq!(packing.unpacked(words), [OUTPUTS, INPUTS]);
            }
        }
    }

    #[test]
    fn inputs_take_the_group_of_their_index() {
        let packing = Packing { layout: Layout::Gptq { bits: 4, zeros_less_one: true }, group_size: Some(8) };
        let groups: Vec<u32> = (0..INPUTS).map(|input| (input * 7 % 3) as u32).collect();
        let written = written(packing, &groups);
        assert_eq!(unpack(packing, &written, Some(&groups)).unwrap(), written.expected);
        assert_ne!(unpack(packing, &written, None).unwrap(), written.expected);
        let outside: Vec<u32> = (0..INPUTS).map(|input| u32::from(input == 5) * 3).collect();
        let error = unpack(packing, &written, Some(&outside)).unwrap_err();
        assert!(error.contains("g_idx of input 5 is 3, but there are 3 groups"), "{error}");
    }

    /// Modules that AutoAWQ and GPTQModel packed, with what these programs unpack (`tests/data/packed`).
    #[test]
    fn modules_of_other_programs_are_unpacked() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/packed");
        let files = vec![folder.join("modules.safetensors")];
        let gptq = |bits, zeros_less_one| Layout::Gptq { bits, zeros_less_one };
        for (module, layout) in [
            ("awq", Layout::Awq),
            ("gptq4", gptq(4, true)),
            ("gptq4-desc", gptq(4, true)),
            ("gptq4-v2", gptq(4, false)),
            ("gptq8-desc", gptq(8, true)),
            ("gptq8-v2", gptq(8, false)),
        ] {
            let paths = WeightPaths {
                folder: folder.clone(),
                files: files.clone(),
                format: WeightFormat::Safetensors,
            };
            let packing = Packing { layout, group_size: Some(32) };
            let weights = Weights::open(&paths).unwrap().packed(Some(packing)).unwrap();
            let values = |name: &str| weights.values(&format!("{module}.{name}"), &[32, 64]).unwrap();
            assert_eq!(values("weight"), values("expected"), "{module}");
        }
    }

    /// GPTQ stores a zero of 0 as the subtraction leaves it, with a borrow from the next code.
    #[test]
    fn zeros_survive_a_borrow() {
        let packing = Packing { layout: Layout::Gptq { bits: 4, zeros_less_one: true }, group_size: None };
        let zeros = [0u32, 5, 0, 0, 15, 1, 0, 9];
        let word = (0..8).fold(0, |word, at| word | zeros[at] << (4 * at));
        let found = packing.zeros(&[word.wrapping_sub(0x1111_1111)], 8);
        assert_eq!(found, zeros.map(|zero| zero as f32));
    }

    #[test]
    fn sizes_that_do_not_divide_are_refused() {
        let refused = |layout, group_size, shape| Packing { layout, group_size }.shapes(shape).unwrap_err();
        let gptq = Layout::Gptq { bits: 4, zeros_less_one: true };
        assert!(refused(Layout::Awq, None, [12, 8]).contains("12 outputs"));
        assert!(refused(Layout::Awq, Some(16), [8, 24]).contains("group size 16"));
        assert!(refused(gptq, None, [8, 12]).contains("12 inputs"));
        assert!(refused(gptq, None, [0, 8]).contains("0 outputs"));
        // The last group of GPTQ may have fewer inputs.
        assert_eq!(Packing { layout: gptq, group_size: Some(16) }.shapes([8, 24]).unwrap().scales, [2, 8]);
    }
}
