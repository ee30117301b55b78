package service

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/serin-dev/serin/internal/chat"
)

type teamsOptions struct{ RecipientURLs map[string]string }

// teamsPart is the part of templates for Teams. Sections, facts and actions are JSON lists in strings; template is the
// whole message as JSON.
type teamsPart struct {
	Template, Title, Summary, Text, ThemeColor, Facts, Sections, PotentialAction string
}

// teamsCard is the message of a connector.
type teamsCard struct {
	Type            string            `json:"@type"`
	Context         string            `json:"context"`
	Title           string            `json:"title"`
	Summary         string            `json:"summary"`
	Text            string            `json:"text"`
	ThemeColor      string            `json:"themeColor,omitempty"`
	PotentialAction []json.RawMessage `json:"potentialAction,omitempty"`
	Sections        []json.RawMessage `json:"sections,omitempty"`
}

var errNoJSON = errors.New("the template for Teams is not valid JSON: correct it")

// newTeams posts to connectors of channels, which answer 1 when they have accepted a message.
func newTeams(c caller, o teamsOptions) (sendFunc, error) {
	return func(ctx context.Context, m Message) error {
		address, err := optionFor("recipientUrls", o.RecipientURLs, m.Recipient)
		if err != nil {
			return err
		}
		payload, err := teamsMessage(m)
		if err != nil {
			return err
		}
		answer, err := c.sendJSON(ctx, chat.Request{URL: address}, payload)
		if err == nil && string(answer) != "1" {
			return refusedError("")
		}
		return err
	}, nil
}

func teamsMessage(m Message) (any, error) {
	var part teamsPart
	if err := m.Content.Part("teams", &part); err != nil {
		return nil, err
	}
	if part.Template != "" {
		return rawJSON(part.Template)
	}
	card := teamsCard{Type: "MessageCard", Context: "https://schema.org/extensions", Title: part.Title, Summary: part.Summary, Text: part.Text, ThemeColor: part.ThemeColor}
	if card.Text == "" {
		card.Text = m.Content.Message
	}
	var err error
	if card.Sections, err = jsonList("teams.sections", part.Sections); err != nil {
		return nil, err
	}
	facts, err := jsonList("teams.facts", part.Facts)
	if err != nil {
		return nil, err
	}
	if len(facts) > 0 {
		section, err := json.Marshal(map[string]any{"facts": facts})
		if err != nil {
			return nil, err
		}
		card.Sections = append(card.Sections, section)
	}
	card.PotentialAction, err = jsonList("teams.potentialAction", part.PotentialAction)
	return card, err
}

func rawJSON(text string) (any, error) {
	if !json.Valid([]byte(text)) {
		return nil, errNoJSON
	}
	return json.RawMessage(text), nil
}

// workflowPart is the part of templates for workflows. adaptiveCard is a card as JSON; title, text and facts are the
// content of a generated card.
type workflowPart struct {
	AdaptiveCard, Template, Title, Summary, Text, Facts string
}

// newTeamsWorkflows posts adaptive cards to workflows, which replaced connectors.
func newTeamsWorkflows(c caller, o teamsOptions) (sendFunc, error) {
	return func(ctx context.Context, m Message) error {
		address, err := optionFor("recipientUrls", o.RecipientURLs, m.Recipient)
		if err != nil {
			return err
		}
		payload, err := workflowMessage(m)
		if err != nil {
			return err
		}
		_, err = c.sendJSON(ctx, chat.Request{URL: address}, payload)
		return err
	}, nil
}

func workflowMessage(m Message) (any, error) {
	var part workflowPart
	if err := m.Content.Part("teams-workflows", &part); err != nil {
		return nil, err
	}
	if part.Template != "" {
		return rawJSON(part.Template)
	}
	card, err := workflowCard(m, part)
	if err != nil {
		return nil, err
	}
	return chat.NewAdaptiveMessage(card), nil
}

func workflowCard(m Message, part workflowPart) (any, error) {
	if part.AdaptiveCard != "" {
		return rawJSON(part.AdaptiveCard)
	}
	body := []chat.AdaptiveElement{}
	if part.Title != "" {
		body = append(body, chat.AdaptiveElement{Type: "TextBlock", Text: part.Title, Weight: "bolder", Size: "large", Wrap: true})
	}
	text := m.Content.Message
	if part.Text != "" {
		text = part.Text
	}
	if text != "" {
		body = append(body, chat.AdaptiveElement{Type: "TextBlock", Text: text, Wrap: true})
	}
	facts, err := adaptiveFacts(part.Facts)
	if err != nil {
		return nil, err
	}
	if len(facts) > 0 {
		body = append(body, chat.AdaptiveElement{Type: "FactSet", Facts: facts})
	}
	return chat.NewAdaptiveCard(body), nil
}

// adaptiveFacts converts the facts of a message card to those of an adaptive card.
func adaptiveFacts(text string) ([]chat.AdaptiveFact, error) {
	items, err := jsonList("teams-workflows.facts", text)
	if err != nil {
		return nil, err
	}
	var out []chat.AdaptiveFact
	for _, item := range items {
		var fact struct{ Name, Title, Value string }
		if err := json.Unmarshal(item, &fact); err != nil {
			return nil, errors.New("teams-workflows.facts of the template is not a list of names and values: correct it")
		}
		if fact.Title == "" {
			fact.Title = fact.Name
		}
		out = append(out, chat.AdaptiveFact{Title: fact.Title, Value: fact.Value})
	}
	return out, nil
}
