//! The official evaluators of Mind2Web (upstream `action_prediction/metric.py`): a model chooses one of five
//! elements at a time until one remains.

mod answer;
mod evaluate;
mod result;
mod sample;

pub(crate) use answer::{
    f1_of_generation, f1_of_multichoice, parse_generation, parse_multichoice, parse_multichoice_llm,
};
pub(crate) use evaluate::{Evaluator, evaluate};
pub(crate) use result::{figures, generation_figures};
pub(crate) use sample::Sample;
