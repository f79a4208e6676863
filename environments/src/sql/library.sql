CREATE DATABASE IF NOT EXISTS `library`;
USE `library`;
CREATE TABLE `author` (
  `author_id` int NOT NULL,
  `name` varchar(60) NOT NULL,
  `country` varchar(40) DEFAULT NULL,
  `born` int DEFAULT NULL,
  PRIMARY KEY (`author_id`)
);
INSERT INTO `author` VALUES (1,'Mara Lindqvist','Sweden',1951),(2,'Paulo Teixeira','Portugal',1968),(3,'Aiko Hayashi','Japan',1974),(4,'Owen Pryce','Wales',1939),(5,'Lena O\'Dwyer','Ireland',1982),(6,'Samuel Adeyemi','Nigeria',NULL);
CREATE TABLE `book` (
  `book_id` int NOT NULL,
  `title` varchar(80) NOT NULL,
  `author_id` int NOT NULL,
  `year` int DEFAULT NULL,
  `pages` int DEFAULT NULL,
  `price` decimal(6,2) DEFAULT NULL,
  PRIMARY KEY (`book_id`),
  CONSTRAINT `book_author` FOREIGN KEY (`author_id`) REFERENCES `author` (`author_id`)
);
INSERT INTO `book` VALUES (1,'The Salt Road',1,1984,312,18.50),(2,'Northern Light',1,1991,268,16.00),(3,'A Harbour Without Ships',2,2003,410,22.75),(4,'Paper Gardens',3,2010,198,14.20),(5,'The Quiet Orchard',3,2016,240,17.90),(6,'Slate',4,1975,356,12.00),(7,'Rain at Noon',5,2012,288,19.99),(8,'The Lighthouse Keeper\'s Ledger',5,2019,334,24.00),(9,'Red Earth',6,2008,302,15.60),(10,'Letters to Lisbon',2,1999,222,13.40);
CREATE TABLE `member` (
  `member_id` int NOT NULL,
  `name` varchar(60) NOT NULL,
  `city` varchar(40) DEFAULT NULL,
  `joined` date NOT NULL,
  PRIMARY KEY (`member_id`)
);
INSERT INTO `member` VALUES (1,'Ines Duarte','Porto','2019-03-14'),(2,'Tomas Berg','Uppsala','2020-07-02'),(3,'Grace Obi','Lagos','2018-11-23'),(4,'Rhys Morgan','Cardiff','2021-01-09'),(5,'Yui Tanaka','Nagoya','2022-05-30'),(6,'Carlos Pinto','Porto','2020-02-17'),(7,'Freya Holm','Uppsala','2023-09-01');
CREATE TABLE `loan` (
  `loan_id` int NOT NULL,
  `book_id` int NOT NULL,
  `member_id` int NOT NULL,
  `lent` date NOT NULL,
  `returned` date DEFAULT NULL,
  PRIMARY KEY (`loan_id`),
  CONSTRAINT `loan_book` FOREIGN KEY (`book_id`) REFERENCES `book` (`book_id`),
  CONSTRAINT `loan_member` FOREIGN KEY (`member_id`) REFERENCES `member` (`member_id`)
);
INSERT INTO `loan` VALUES (1,1,1,'2023-01-10','2023-01-31'),(2,3,1,'2023-02-04','2023-03-01'),(3,10,1,'2023-05-12',NULL),(4,2,2,'2023-01-15','2023-02-01'),(5,1,2,'2023-03-03','2023-03-20'),(6,8,2,'2023-06-21',NULL),(7,9,3,'2022-12-01','2023-01-02'),(8,6,4,'2023-04-18','2023-05-05'),(9,4,5,'2023-02-11','2023-02-25'),(10,5,5,'2023-02-25',NULL),(11,7,6,'2023-03-09','2023-04-02'),(12,8,6,'2023-04-02','2023-06-20');
