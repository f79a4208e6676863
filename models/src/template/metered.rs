//! Rewrites the instructions of a compiled template, so that they charge its budgets.

use minijinja::Value;
use minijinja::machinery::{Instruction, Instructions};

/// Names that templates cannot write, so that their own filters and functions cannot replace these.
pub(super) const CHARGE: &str = "+charge";
pub(super) const CHARGE_SHARED: &str = "+charge-shared";
pub(super) const READ: &str = "+read";
pub(super) const READ_SHALLOW: &str = "+read-shallow";
pub(super) const FILTER: &str = "+filter";
pub(super) const TEST: &str = "+test";
pub(super) const METHOD: &str = "+method";
pub(super) const MULTIPLY: &str = "*";
pub(super) const SLICE: &str = "[:]";

/// Marks a filter that is looked up by name each time.
const BY_NAME: u8 = !0;

/// Inserts charges before instructions that read values and after those that build values. Text of the template is
/// written as values.
pub(super) fn metered<'s>(found: &Instructions<'s>) -> Instructions<'s> {
    let instructions: Vec<&Instruction<'s>> = (0..).map_while(|index| found.get(index)).collect();
    // New index of each instruction, and of the end.
    let mut places = vec![0];
    let mut written = Vec::with_capacity(instructions.len());
    for instruction in instructions {
        let index = written.len() as u32;
        let line = found.get_line(index).unwrap_or(0);
        let replaced = replacement(instruction);
        places.push(places[places.len() - 1] + replaced.len() as u32);
        written.push((line, replaced));
    }
    let mut metered = Instructions::new(found.name(), found.source());
    for (line, replaced) in written {
        for mut instruction in replaced {
            if let Instruction::Iterate(target)
            | Instruction::Jump(target)
            | Instruction::JumpIfFalse(target)
            | Instruction::JumpIfFalseOrPop(target)
            | Instruction::JumpIfTrueOrPop(target)
            | Instruction::BuildMacro(_, target, _) = &mut instruction
            {
                *target = places.get(*target as usize).copied().unwrap_or(*target);
            }
            metered.add_with_line(instruction, u16::try_from(line).unwrap_or(u16::MAX));
        }
    }
    metered
}

/// Returns the instructions that replace an instruction.
fn replacement<'s>(instruction: &Instruction<'s>) -> Vec<Instruction<'s>> {
    let charge = Instruction::ApplyFilter(CHARGE, Some(1), BY_NAME);
    let charge_shared = Instruction::ApplyFilter(CHARGE_SHARED, Some(1), BY_NAME);
    // These return the value at the end of the stack unchanged.
    let read = Instruction::ApplyFilter(READ, Some(1), BY_NAME);
    let read_shallow = Instruction::ApplyFilter(READ_SHALLOW, Some(1), BY_NAME);
    match instruction {
        Instruction::EmitRaw(text) => {
            vec![Instruction::LoadConst(Value::from_safe_string((*text).to_owned())), Instruction::Emit]
        }
        Instruction::Mul => vec![Instruction::ApplyFilter(MULTIPLY, Some(2), BY_NAME), charge],
        Instruction::Slice => vec![Instruction::ApplyFilter(SLICE, Some(4), BY_NAME), charge_shared],
        Instruction::Eq
        | Instruction::Ne
        | Instruction::Lt
        | Instruction::Lte
        | Instruction::Gt
        | Instruction::Gte
        | Instruction::In
        | Instruction::CompareAndPreserve(_) => {
            vec![read.clone(), Instruction::Swap, read, Instruction::Swap, instruction.clone()]
        }
        Instruction::GetItem => {
            vec![read, Instruction::Swap, read_shallow, Instruction::Swap, instruction.clone()]
        }
        Instruction::PushLoop(_) | Instruction::UnpackList(_) | Instruction::FastRecurse => {
            vec![read_shallow, instruction.clone()]
        }
        Instruction::Include(_) => vec![read, instruction.clone()],
        // Building a map reads its keys.
        Instruction::BuildMap(_) => vec![instruction.clone(), charge_shared, read],
        // These build lists from existing values.
        Instruction::Add | Instruction::BuildList(_) | Instruction::BuildTuple(_) => {
            vec![instruction.clone(), charge_shared]
        }
        Instruction::ApplyFilter(name, count, _) => {
            let call = |count| Instruction::ApplyFilter(FILTER, count, BY_NAME);
            [named_call(name, *count, call), vec![charge]].concat()
        }
        Instruction::CallMethod(name, count) => {
            let call = |count| Instruction::ApplyFilter(METHOD, count, BY_NAME);
            [named_call(name, *count, call), vec![charge]].concat()
        }
        Instruction::PerformTest("lower" | "upper", Some(1), _) => vec![read, instruction.clone()],
        // Other tests without arguments take constant time.
        Instruction::PerformTest(_, Some(1), _) => vec![instruction.clone()],
        Instruction::PerformTest(name, count, _) => {
            named_call(name, *count, |count| Instruction::PerformTest(TEST, count, BY_NAME))
        }
        // It may continue a recursive loop.
        Instruction::CallFunction(_, Some(1)) => vec![read_shallow, instruction.clone(), charge],
        Instruction::StringConcat | Instruction::CallFunction(..) | Instruction::CallObject(_) => {
            vec![instruction.clone(), charge]
        }
        _ => vec![instruction.clone()],
    }
}

/// Returns instructions that make a call with a name as an additional last argument.
fn named_call<'s>(
    name: &str,
    count: Option<u16>,
    call: impl Fn(Option<u16>) -> Instruction<'s>,
) -> Vec<Instruction<'s>> {
    let name = Instruction::LoadConst(Value::from(name));
    match count {
        Some(count) => vec![name, call(Some(count + 1))],
        // Their number follows the arguments.
        None => {
            let one = Instruction::LoadConst(Value::from(1));
            vec![name, Instruction::Swap, one, Instruction::Add, call(None)]
        }
    }
}
