// What the search shows first: a page before its parts; pages for users before the reference, developers' pages last.
const weights = [
  [/^(docs\/use|examples)\//, 2],
  [/^docs\/operate\//, 1.9],
  [/^docs\/test\//, 1.8],
  [/^docs\/reference\//, 1.2],
  [/^(docs\/README|docs\/internals\/|benchmarks\/|CHANGELOG|ARCHITECTURE|CONTRIBUTING)/, 0.5],
];

var Scorer = {
  score: ([page, , anchor, , score]) => {
    const [, weight] = weights.find(([of]) => of.test(page)) ?? [null, 1];
    return score * weight * (anchor ? 1 : 2);
  },
  objNameMatch: 11,
  objPartialMatch: 4,
  objPrio: { 0: 5, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
