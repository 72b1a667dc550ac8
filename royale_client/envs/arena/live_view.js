
// Ask the client for what has been played since, and begin anew with the next battle.
let battle = -1;

async function follow() {
  let wait = 250;
  try {
    const answer = await fetch("frames?battle=" + battle + "&from=" + D.frames.length);
    const news = await answer.json();
    if (news.battle !== battle) {
      battle = news.battle; at = 0; D.frames = []; D.players = news.players;
    }
    D.frames.push(...news.frames); D.end = news.end; last = D.frames.length - 1;
    named();
    if (news.end) wait = 1500;
  } catch (error) {
    D.end = "the client does not answer";
  }
  setTimeout(follow, wait);
}
follow();
