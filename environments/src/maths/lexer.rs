//! Splits text into tokens.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Zero};

use super::exact;
use super::limits::{Meter, within};
use super::units::{self, Unit};
use super::{MathsError, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Relation {
    /// The relation with its sides exchanged.
    pub(crate) fn reversed(self) -> Self {
        match self {
            Self::Equal | Self::NotEqual => self,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    SquareRoot,
    Absolute,
    Floor,
    Ceiling,
}

/// The word that begins a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyword {
    Solve,
    Expand,
    Calculate,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    Number(BigRational),
    Variable(String),
    Unit(&'static Unit),
    Function(Function),
    Keyword(Keyword),
    Relation(Relation),
    Plus,
    Minus,
    Times,
    Divide,
    Power,
    Percent,
    Factorial,
    Open,
    Close,
    Comma,
    And,
    Where,
    For,
}

/// How letters after digits are parsed. In an equation `2x1` contains the unknown `x1` and `3e+2` the unknown
/// `e`; elsewhere they are a product written with an x and a number with an exponent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    Equation,
    Value,
}

/// Splits a text into tokens.
pub(crate) fn tokens(text: &str, reading: Reading, meter: &mut Meter) -> Result<Vec<Token>> {
    within("bytes of input", text.len(), meter.limits().input_bytes)?;
    let characters = text.chars().collect();
    let mut lexer = Lexer { characters, position: 0, reading, tokens: Vec::new() };
    while let Some(character) = lexer.peek(0) {
        lexer.token(character, meter)?;
    }
    Ok(lexer.tokens)
}

struct Lexer {
    characters: Vec<char>,
    position: usize,
    reading: Reading,
    tokens: Vec<Token>,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.position + ahead).copied()
    }

    fn is_digit(&self, ahead: usize) -> bool {
        self.peek(ahead).is_some_and(|character| character.is_ascii_digit())
    }

    fn push(&mut self, token: Token, length: usize) {
        self.tokens.push(token);
        self.position += length;
    }

    fn token(&mut self, character: char, meter: &mut Meter) -> Result<()> {
        let next = self.peek(1);
        match character {
            _ if character.is_whitespace() => self.position += 1,
            '0'..='9' => self.number(meter)?,
            '.' if self.is_digit(1) => self.number(meter)?,
            'a'..='z' | 'A'..='Z' => self.word()?,
            '$' if self.number_follows(1) => self.position += 1,
            '+' => self.push(Token::Plus, 1),
            '-' | '−' | '–' => self.push(Token::Minus, 1),
            '*' if next == Some('*') => self.push(Token::Power, 2),
            '*' | '×' | '·' | '⋅' | '∗' => self.push(Token::Times, 1),
            '/' | '÷' | '∕' => self.push(Token::Divide, 1),
            '^' => self.push(Token::Power, 1),
            '²' => self.superscript(2),
            '³' => self.superscript(3),
            '%' => self.push(Token::Percent, 1),
            '!' if next == Some('=') => self.push(Token::Relation(Relation::NotEqual), 2),
            '!' => self.push(Token::Factorial, 1),
            '√' => self.push(Token::Function(Function::SquareRoot), 1),
            '(' => self.push(Token::Open, 1),
            ')' => self.push(Token::Close, 1),
            ',' | ';' => self.push(Token::Comma, 1),
            '∧' | '&' => self.push(Token::And, 1),
            '=' if next == Some('=') => self.push(Token::Relation(Relation::Equal), 2),
            '=' => self.push(Token::Relation(Relation::Equal), 1),
            '≠' => self.push(Token::Relation(Relation::NotEqual), 1),
            '<' if next == Some('=') => self.push(Token::Relation(Relation::LessOrEqual), 2),
            '<' => self.push(Token::Relation(Relation::Less), 1),
            '≤' | '⩽' => self.push(Token::Relation(Relation::LessOrEqual), 1),
            '>' if next == Some('=') => self.push(Token::Relation(Relation::GreaterOrEqual), 2),
            '>' => self.push(Token::Relation(Relation::Greater), 1),
            '≥' | '⩾' => self.push(Token::Relation(Relation::GreaterOrEqual), 1),
            _ => return Err(MathsError::not_understood(format!("the character {character:?}"))),
        }
        Ok(())
    }

    fn superscript(&mut self, exponent: i64) {
        self.tokens.push(Token::Power);
        self.push(Token::Number(exact::small(exponent)), 1);
    }

    /// Whether a number starts after white space from `ahead` on.
    fn number_follows(&self, ahead: usize) -> bool {
        let mut ahead = ahead;
        while self.peek(ahead).is_some_and(char::is_whitespace) {
            ahead += 1;
        }
        self.is_digit(ahead) || (self.peek(ahead) == Some('.') && self.is_digit(ahead + 1))
    }

    fn number(&mut self, meter: &mut Meter) -> Result<()> {
        let mut digits = self.whole_digits();
        let mut places = 0_u64;
        if self.peek(0) == Some('.') && self.peek(1) != Some('.') {
            self.position += 1;
            let fraction = self.digits();
            places = fraction.len() as u64;
            digits.push_str(&fraction);
        }
        if self.peek(0) == Some('.') {
            return Err(MathsError::not_understood("a number with two points"));
        }
        let exponent = self.exponent()?;
        let value = decimal(&digits, places, exponent, meter)?;
        self.tokens.push(Token::Number(value));
        self.times_sign();
        Ok(())
    }

    fn digits(&mut self) -> String {
        let mut digits = String::new();
        while let Some(digit) = self.peek(0).filter(char::is_ascii_digit) {
            digits.push(digit);
            self.position += 1;
        }
        digits
    }

    /// Digits before the point, with commas between groups of three.
    fn whole_digits(&mut self) -> String {
        let mut digits = self.digits();
        if digits.is_empty() || digits.len() > 3 {
            return digits;
        }
        while self.peek(0) == Some(',') && (1..=3).all(|ahead| self.is_digit(ahead)) && !self.is_digit(4) {
            self.position += 1;
            digits.push_str(&self.digits());
        }
        digits
    }

    /// `e5`, `E-3` directly after the digits of a value.
    fn exponent(&mut self) -> Result<i64> {
        if self.reading == Reading::Equation || !matches!(self.peek(0), Some('e' | 'E')) {
            return Ok(0);
        }
        let sign = usize::from(matches!(self.peek(1), Some('+' | '-')));
        if !self.is_digit(1 + sign) {
            return Ok(0);
        }
        let negative = self.peek(1) == Some('-');
        self.position += 1 + sign;
        let exponent: i64 = self
            .digits()
            .parse()
            .map_err(|_| MathsError::TooLarge { what: "exponent of a number", limit: i64::MAX as u64 })?;
        Ok(if negative { -exponent } else { exponent })
    }

    /// `13 x 17` and `13x17`: between two numbers, with the same spacing on both sides, an x multiplies.
    fn times_sign(&mut self) {
        let before = (0..).take_while(|ahead| self.peek(*ahead).is_some_and(char::is_whitespace)).count();
        if !matches!(self.peek(before), Some('x' | 'X')) {
            return;
        }
        let spaced_after = self.peek(before + 1).is_some_and(char::is_whitespace);
        let subscript = before == 0 && self.reading == Reading::Equation;
        if spaced_after == (before > 0) && !subscript && self.number_follows(before + 1) {
            self.push(Token::Times, before + 1);
        }
    }

    fn word(&mut self) -> Result<()> {
        let mut word = String::new();
        while let Some(letter) = self.peek(0).filter(char::is_ascii_alphabetic) {
            word.push(letter);
            self.position += 1;
        }
        if word.len() == 1 {
            if self.peek(0) == Some('_') && self.is_digit(1) {
                word.push('_');
                self.position += 1;
            }
            word.push_str(&self.digits());
            self.tokens.push(Token::Variable(word));
            return Ok(());
        }
        if self.is_digit(0) || self.peek(0) == Some('_') {
            return Err(MathsError::not_understood(format!("the name {word:?} followed by digits")));
        }
        let lower = word.to_ascii_lowercase();
        let token = match lower.as_str() {
            "solve" => Token::Keyword(Keyword::Solve),
            "expand" => Token::Keyword(Keyword::Expand),
            "calculate" => Token::Keyword(Keyword::Calculate),
            "where" => Token::Where,
            "and" => Token::And,
            "for" => Token::For,
            "of" => Token::Times,
            "sqrt" => Token::Function(Function::SquareRoot),
            "abs" => Token::Function(Function::Absolute),
            "floor" => Token::Function(Function::Floor),
            "ceil" | "ceiling" => Token::Function(Function::Ceiling),
            _ if is_product_of_letters(&word) => {
                self.tokens.extend(word.chars().map(|letter| Token::Variable(letter.to_string())));
                return Ok(());
            }
            _ => match units::find(&lower) {
                Some(unit) => Token::Unit(unit),
                None => return Err(MathsError::not_understood(format!("the word {word:?}"))),
            },
        };
        self.tokens.push(token);
        Ok(())
    }
}

/// `xy`, `abc`: usual unknowns in alphabetical order, written without an operator between them.
fn is_product_of_letters(word: &str) -> bool {
    ["abc", "xyz"].iter().any(|letters| {
        let mut rest = letters.chars();
        word.chars().all(|letter| rest.any(|known| known == letter))
    })
}

/// `digits · 10^(exponent - places)`.
pub(crate) fn decimal(digits: &str, places: u64, exponent: i64, meter: &mut Meter) -> Result<BigRational> {
    // Every digit after the first has more than three bits, so numbers beyond the limit are rejected without
    // parsing them.
    let significant = digits.trim_start_matches('0').len() as u64;
    meter.check_bits(significant.saturating_sub(1).saturating_mul(3))?;
    meter.spend(10 + digits.len() as u64)?;
    let Some(whole) = BigInt::parse_bytes(digits.as_bytes(), 10) else {
        return Err(MathsError::not_understood("a number without digits"));
    };
    if whole.is_zero() {
        return Ok(BigRational::zero());
    }
    let value = BigRational::from_integer(whole);
    meter.check(&value)?;
    let shift = BigInt::from(exponent) - BigInt::from(places);
    if shift.is_zero() {
        return Ok(value);
    }
    let ten = BigRational::from_integer(BigInt::one() * 10);
    let scale = exact::power(&ten, &shift, meter)?;
    exact::multiply(&value, &scale, meter)
}
