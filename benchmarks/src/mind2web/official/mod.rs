//! The official evaluators of Mind2Web (upstream `action_prediction/metric.py`): a model chooses one of five
//! elements at a time until one remains.

mod answer;
mod evaluate;
mod result;
mod sample;

pub use answer::{
    ParsedAnswer, f1_of_generation, f1_of_multichoice, parse_generation, parse_multichoice,
    parse_multichoice_llm,
};
pub use evaluate::{Evaluation, EvaluationError, Evaluator, Prediction, Round, evaluate};
pub use result::{Figures, figures, generation_figures};
pub use sample::{Candidate, Operation, Sample};
