//! Parses tokens to expression trees.
//!
//! Sums and products are flat lists, so the depth of a tree depends on its parentheses and not on its length.

use num_rational::BigRational;

use super::lexer::{Function, Token};
use super::limits::{Meter, within};
use super::monomial::{Variable, Variables};
use super::{MathsError, Result};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expression {
    Number(BigRational),
    Variable(Variable),
    Negative(Box<Expression>),
    Sum(Vec<Term>),
    Product(Vec<Factor>),
    Power(Box<Expression>, Box<Expression>),
    Marked(Box<Expression>, Vec<Mark>),
    Call(Function, Box<Expression>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Term {
    pub(crate) subtracted: bool,
    pub(crate) expression: Expression,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Factor {
    pub(crate) divides: bool,
    pub(crate) expression: Expression,
}

/// A sign after an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Percent,
    Factorial,
}

/// Parses all tokens as one expression.
pub(crate) fn parse(tokens: &[Token], variables: &Variables, meter: &Meter) -> Result<Expression> {
    let mut parser = Parser { tokens, position: 0, depth: 0, deepest: meter.limits().nesting, variables };
    let expression = parser.sum()?;
    match parser.peek() {
        None => Ok(expression),
        Some(Token::Close) => Err(MathsError::not_understood("a closing parenthesis without an opening one")),
        Some(Token::Number(_)) => Err(MathsError::not_understood("two numbers side by side")),
        Some(Token::Relation(_)) => Err(MathsError::not_understood("a relation inside an expression")),
        Some(_) => Err(MathsError::not_understood("something after the end of an expression")),
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    position: usize,
    depth: usize,
    deepest: usize,
    variables: &'a Variables,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.position)
    }

    fn take(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        if found {
            self.position += 1;
        }
        found
    }

    /// Parses signs. Returns whether they negate the following operand.
    fn signs(&mut self) -> bool {
        let mut negative = false;
        loop {
            if self.take(&Token::Minus) {
                negative = !negative;
            } else if !self.take(&Token::Plus) {
                return negative;
            }
        }
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth += 1;
        within("nested parentheses", self.depth, self.deepest)?;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn sum(&mut self) -> Result<Expression> {
        let subtracted = self.signs();
        let expression = self.product()?;
        let is_followed = matches!(self.peek(), Some(Token::Plus | Token::Minus));
        if !subtracted && !is_followed {
            return Ok(expression);
        }
        let mut terms = vec![Term { subtracted, expression }];
        while matches!(self.peek(), Some(Token::Plus | Token::Minus)) {
            let subtracted = self.signs();
            terms.push(Term { subtracted, expression: self.product()? });
        }
        Ok(Expression::Sum(terms))
    }

    fn product(&mut self) -> Result<Expression> {
        let mut factors = vec![Factor { divides: false, expression: self.power()? }];
        loop {
            let times = self.take(&Token::Times);
            let divides = !times && self.take(&Token::Divide);
            if times || divides {
                let negative = self.signs();
                let operand = self.power()?;
                let expression = if negative { Expression::Negative(Box::new(operand)) } else { operand };
                factors.push(Factor { divides, expression });
            } else if self.multiplies_by_standing_beside() {
                factors.push(Factor { divides: false, expression: self.power()? });
            } else {
                break;
            }
        }
        Ok(if factors.len() == 1 { factors.remove(0).expression } else { Expression::Product(factors) })
    }

    /// Whether the next token starts a factor. A number after another number does not: in `10 % 3` or `2 3`
    /// an operator is missing, and guessing it would give a wrong value.
    fn multiplies_by_standing_beside(&self) -> bool {
        let previous = self.position.checked_sub(1).and_then(|position| self.tokens.get(position));
        match self.peek() {
            Some(Token::Variable(_) | Token::Open | Token::Function(_)) => true,
            Some(Token::Number(_)) => matches!(previous, Some(Token::Close | Token::Variable(_))),
            _ => false,
        }
    }

    /// Parses an operand with its exponent: right-associative, and binding tighter than a sign before it.
    fn power(&mut self) -> Result<Expression> {
        let base = self.marked()?;
        if !self.take(&Token::Power) {
            return Ok(base);
        }
        let exponent = self.deeper(|parser| {
            let negative = parser.signs();
            let exponent = parser.power()?;
            Ok(if negative { Expression::Negative(Box::new(exponent)) } else { exponent })
        })?;
        Ok(Expression::Power(Box::new(base), Box::new(exponent)))
    }

    fn marked(&mut self) -> Result<Expression> {
        let operand = self.operand()?;
        let mut marks = Vec::new();
        loop {
            if self.take(&Token::Percent) {
                marks.push(Mark::Percent);
            } else if self.take(&Token::Factorial) {
                marks.push(Mark::Factorial);
            } else if marks.is_empty() {
                return Ok(operand);
            } else {
                return Ok(Expression::Marked(Box::new(operand), marks));
            }
        }
    }

    fn operand(&mut self) -> Result<Expression> {
        let Some(token) = self.peek() else {
            return Err(MathsError::not_understood("an operand is missing at the end"));
        };
        let expression = match token {
            Token::Number(value) => Expression::Number(value.clone()),
            Token::Variable(name) => match self.variables.find(name) {
                Some(variable) => Expression::Variable(variable),
                None => return Err(MathsError::not_understood(format!("the unknown {name}"))),
            },
            Token::Open => return self.parenthesised(),
            Token::Function(function) => {
                let function = *function;
                self.position += 1;
                let argument = match self.peek() {
                    Some(Token::Open) => self.parenthesised()?,
                    _ => self.deeper(Self::operand)?,
                };
                return Ok(Expression::Call(function, Box::new(argument)));
            }
            Token::Unit(_) => return Err(MathsError::not_understood("a unit")),
            _ => return Err(MathsError::not_understood("an operand is missing")),
        };
        self.position += 1;
        Ok(expression)
    }

    fn parenthesised(&mut self) -> Result<Expression> {
        self.position += 1;
        let inner = self.deeper(Self::sum)?;
        if self.take(&Token::Close) {
            Ok(inner)
        } else {
            Err(MathsError::not_understood("an opening parenthesis without a closing one"))
        }
    }
}
