// What a chain of so many parties does to a question, in the words of the boxes at the top.

export interface Step {
  who: string;
  does: string; // goes on after the name
}

/** One for each party, the first first. There are two or more. */
export function partySteps(parties: number): Step[] {
  return Array.from({ length: parties }, (_, i) => {
    const who = `Party ${i + 1}`;
    if (i + 1 === parties) {
      return { who, does: "opens the last layer, and answers. It knows the rows that are asked, and not by whom." };
    }
    if (i === 0) {
      return { who, does: "opens its layer, mixes in questions that it made up, and shuffles. It knows you, and not the question." };
    }
    return { who, does: i === 1 ? "does the same again. It knows neither." : "does so, too." };
  });
}
